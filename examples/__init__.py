"""Examples: read them, run them, copy them. Each says in its head how."""
