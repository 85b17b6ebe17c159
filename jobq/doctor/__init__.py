"""What will hurt, and the remedy: rules over facts, each a function of what was read, none with I/O.

Read `examination.py` for the list of all rules; the facts are gathered in `db/facts.py`.
"""
