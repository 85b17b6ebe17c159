"""The whole promise of jobq in half a minute: what `jobq demo` shows. Written as its users would write it.

- `shop`         the application: orders, and the receipts that its workers send
- `mail_server`  real SMTP that is slow, refuses at times, and does not know some mailboxes until that is mended
- `workers`      worker processes: `jobq run`, killed without a warning
- `play`         what happens, act by act
- `account`      what must be true at the end, from what the database and the mail server know
- `stage`        what one sees meanwhile: a live table on a terminal, lines elsewhere
"""
