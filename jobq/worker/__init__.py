"""The worker: loops that claim, run and settle jobs, and the supervisor that starts and stops them."""
