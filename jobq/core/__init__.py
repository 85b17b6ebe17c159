"""The rules of jobq: pure functions and records. No I/O, no clock, no chance, no event loop."""
