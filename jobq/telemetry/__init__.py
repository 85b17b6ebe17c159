"""What happens in a worker, as a closed list of events, and where it goes: the log."""
