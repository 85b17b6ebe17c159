"""The SQL that gives each role of an instance the rights that it needs, and no others: `roles.sql`, for a DBA to run.

Here it is only rendered; nothing of jobq runs it.
"""

from __future__ import annotations

from importlib.resources import files

from jobq.core.names import shown, text_fault
from jobq.db.migrate import newest_version
from jobq.db.statements import quote_identifier, render
from jobq.errors import ConfigurationError

ROLES = ("owner", "producer", "worker", "reader", "operator")
DEFAULT_PREFIX = "jobq_"
MAX_NAME_BYTES = 63  # NAMEDATALEN - 1: PostgreSQL would cut a longer one without a word


def roles_sql(schema: str, *, prefix: str = DEFAULT_PREFIX) -> str:
    """Return the script for *schema*; the roles are called *prefix*`owner`, *prefix*`producer` and so on.

    Raises `ConfigurationError` for a prefix that cannot begin the name of a role.
    """
    if fault := _prefix_fault(prefix):
        raise ConfigurationError(fault)
    text = files("jobq.db").joinpath("roles", "roles.sql").read_text("utf-8")
    for role in ROLES:
        text = text.replace(f"@{role}@", quote_identifier(prefix + role))
    return render(text.replace("@version@", str(newest_version())), schema)


def _prefix_fault(prefix: str) -> str | None:
    if fault := text_fault(prefix):
        return f"the prefix of the roles {shown(prefix)} {fault}"
    if not prefix.isprintable() or "$" in prefix or "@" in prefix:
        return f"the prefix of the roles {shown(prefix)} contains $, @ or a control character; use one such as 'jobq_'"
    if prefix.startswith("pg_"):
        return f"the prefix of the roles {shown(prefix)} begins with pg_, which PostgreSQL keeps for itself"
    limit = MAX_NAME_BYTES - max(map(len, ROLES))
    if (size := len(prefix.encode())) > limit:
        return f"the prefix of the roles {shown(prefix)} has {size} bytes, more than {limit}: shorten it"
    return None
