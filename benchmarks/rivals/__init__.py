"""The benchmark `rivals`: jobq and other queues on PostgreSQL, in one run on one server."""
