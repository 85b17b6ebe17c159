"""What jobq reaches, measured the same way everywhere: `python -m benchmarks NAME [--json] [--dsn DSN]`."""
