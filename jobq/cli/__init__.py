"""The command line `jobq`: one file a group of commands, and what they share, named by what it is for."""
