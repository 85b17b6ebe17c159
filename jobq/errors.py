"""Every error that jobq raises, so that one `except JobqError` catches them all.

    JobqError
    ├── ConfigurationError          a setting, a DSN, an option
    │   ├── ImportTargetError       `app:queue` cannot be loaded
    │   ├── HandlerError            a registration is refused
    │   ├── RecurringError          a recurring entry is refused: its expression, its zone, an option
    │   └── SchemaError             the schema is missing, older or newer than this code
    ├── EnqueueError (ValueError)   refused before any SQL: the caller's transaction is usable
    │   ├── PayloadError            the payload, with the path of the offending value
    │   ├── UnknownKindError        a kind name that needs `queue=` or a registration
    │   └── NotInTransactionError   `conn=` outside a transaction, without `autocommit=True`
    ├── DatabaseError               PostgreSQL refused a statement
    │   ├── DatabaseUnavailableError  no connection, no answer in time, or a read-only server
    │   │   └── AccessRefusedError    no such user, password or database, or no TLS as the DSN demands it
    │   ├── ConflictError           a concurrent transaction was in the way: run the transaction again
    │   │   └── PreparedStatementError  a pooler has changed the server connection under a prepared statement
    │   └── MigrationError          a migration was refused or did not get its lock in time
    ├── LostLeaseError              this attempt no longer owns its job; nothing was written
    ├── ResourceError               a resource asked for was not opened in `lifespan`
    ├── EmbeddedServerError         the embedded PostgreSQL cannot be installed, started or joined
    └── raised by handlers
        ├── Permanent               do not retry: dead letter at once
        └── RetryAfter              retry after a given time

    LargePayloadWarning (UserWarning)   a payload that looks like state, not a reference to it

Each message says what happened, shows the value and names the remedy; the data are attributes too.
"""

from __future__ import annotations

from datetime import timedelta


class JobqError(Exception):
    """Root of all errors of jobq."""


class ConfigurationError(JobqError):
    """A setting, DSN or option cannot be used. The command line exits with 78."""


class ImportTargetError(ConfigurationError):
    """`app:queue` is badly spelt, or its module or attribute does not exist.

    An error *inside* the user's module is not turned into this one: it keeps its own traceback.
    """


class HandlerError(ConfigurationError):
    """A handler's registration is refused: signature, names or options."""


class RecurringError(ConfigurationError):
    """A recurring entry is refused: its name, its expression, its time zone or an option."""


class SchemaError(ConfigurationError):
    """The schema in the database is missing, older than this code, or too new for it."""


class EnqueueError(JobqError, ValueError):
    """A job is refused before any SQL was sent; the caller's transaction stays usable.

    *field* names what was refused (`run_at`, `priority`, ...), *index* the position in `enqueue_many`.
    """

    def __init__(self, message: str, *, field: str, value: object = None, index: int | None = None) -> None:
        super().__init__(message if index is None else f"job {index}: {message}")
        self.message = message
        self.field = field
        self.value = value
        self.index = index

    def at(self, index: int) -> EnqueueError:
        """Return the same error, told about job number *index* of a bulk enqueue."""
        return type(self)(self.message, field=self.field, value=self.value, index=index)


class PayloadError(EnqueueError):
    """A payload cannot be stored as it is, or does not fit the handler's signature.

    `field` is the path of the offending value, such as `$.lines[3].price`.
    """


class UnknownKindError(EnqueueError):
    """A kind that is not registered here was enqueued without `queue=`."""


class NotInTransactionError(EnqueueError):
    """`conn=` has no open transaction, so the job would not be atomic with anything."""


class DatabaseError(JobqError):
    """PostgreSQL refused a statement; the driver's error is the `__cause__`."""


class DatabaseUnavailableError(DatabaseError):
    """No connection, no answer within the deadline, or a server that is read-only or shutting down."""


class AccessRefusedError(DatabaseUnavailableError):
    """The server refuses the user, the password or the database, or TLS cannot be had as the DSN demands it.

    At the start of a worker: exit 78. Later it is an outage like any other, and the worker tries on.
    """


class ConflictError(DatabaseError):
    """A concurrent transaction was in the way (serialization failure, deadlock, lock time-out): run it again.

    An enqueue meets it under REPEATABLE READ and SERIALIZABLE, when a concurrent transaction that it may not
    see has taken the same idempotency key.
    """


class PreparedStatementError(ConflictError):
    """A prepared statement is not there, or is there already: a pooler has changed the server connection.

    Behind a pooler in transaction mode set `prepared_statements=False`.
    """


class MigrationError(DatabaseError):
    """A migration was refused, or did not get its lock within `lock_timeout`. Nothing of it was applied."""


class LostLeaseError(JobqError):
    """The attempt no longer owns its job (another claim has a newer fence); nothing was written."""


class ResourceError(JobqError):
    """`job.resource(T)` asks for a type that `lifespan` did not yield, or yielded more than once."""


class EmbeddedServerError(JobqError):
    """The embedded PostgreSQL cannot be installed, started or joined."""


class Permanent(JobqError):
    """Raised by a handler: this job can never succeed. It becomes a dead letter without another attempt."""


class RetryAfter(JobqError):
    """Raised by a handler: try again after *delay* (seconds or `timedelta`), as a 429 asks for.

    The attempt counts. A delay that is negative, not finite or not a duration is replaced by the
    kind's own backoff and logged; one above 30 days is cut to 30 days.
    """

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        super().__init__(message or f"retry after {delay}")
        self.delay = delay


class LargePayloadWarning(UserWarning):
    """A payload of 8 kB or more: enqueue a reference and let the handler load what is true when it runs."""
