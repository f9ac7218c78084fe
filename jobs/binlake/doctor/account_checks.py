"""Checks of what an account lacks though its grants look right: roles, tables that it can't see, connections.

Sources: MySQL manual 8.2.10 Using Roles, 8.2.12 Privilege Restriction Using Partial Revokes, 8.2.21 Setting Account
Resource Limits; MariaDB Knowledge Base, Roles Overview.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from binlake.config import PipelineConfig
from binlake.doctor.check import GRANTS, Check
from binlake.doctor.server_checks import Examined, account_sql, grant_sql
from binlake.errors import SourceError
from binlake.kernels.cores import available_cores
from binlake.names import grant_quote, matches_database, mysql_quote
from binlake.schema.table import TableName
from binlake.source.server import denied

_ROLE = r"`(?:[^`]|``)+`(?:@`(?:[^`]|``)*`)?"
_GRANTED = re.compile(rf"GRANT ((?:{_ROLE}(?:,\s*)?)+) TO ")
_REVOKED = re.compile(r"REVOKE (?P<privileges>.+?) ON (?P<database>`(?:[^`]|``)+`)\.\* FROM ")
_CONTROLS = 2
"""Connections beside those that read rows or the log: one that asks, and one that describes files."""
_PLAIN_NAME = re.compile(r"[0-9A-Za-z_$]+/[0-9A-Za-z_$]+\Z")


def roles(subject: Examined) -> Iterator[Check]:
    """Warn of roles that were granted to the account and aren't active in its sessions."""
    granted = [role for text in subject.source.grants() if (match := _GRANTED.match(text)) for role in _roles(match[1])]
    if not granted:
        return
    active = set(_roles(str(subject.source.query("SELECT CURRENT_ROLE() AS role")[0]["role"] or "")))
    idle = [role for role in granted if role not in active]
    if not idle:
        yield Check("roles", True, f"{', '.join(granted)}: active")
        return
    remedy = f"SET DEFAULT ROLE ALL TO {account_sql(subject)};"
    if subject.source.is_mariadb:
        remedy = f"SET DEFAULT ROLE {mysql_quote(idle[0])} FOR {account_sql(subject)};"
    finding = f"{', '.join(idle)}: granted, but not active in new sessions, so its privileges don't count"
    yield Check("roles", "warn", finding, remedy)


def _roles(text: str) -> list[str]:
    """Return the names of roles, without their host where that is any."""
    quoted = re.findall(_ROLE, text)
    if not quoted:  # MariaDB's CURRENT_ROLE()
        return [text] if text and text != "NONE" else []
    return [role.removesuffix("@`%`").strip("`").replace("``", "`") for role in quoted]


def unseen_tables(subject: Examined, config: PipelineConfig, visible: Collection[TableName]) -> Iterator[Check]:
    """Report included tables that the account can't see: they would be left out without a word."""
    for text in subject.source.grants():
        match = _REVOKED.match(text)
        if match is None or not {"SELECT", "ALL PRIVILEGES"} & set(match["privileges"].upper().split(", ")):
            continue
        database = match["database"].strip("`").replace("``", "`")
        if any(matches_database(pattern, database) for pattern in config.tables.include):
            finding = f"SELECT is revoked on {database}, whose tables are included: they can't be seen"
            sql = grant_sql(subject, "SELECT", f"{grant_quote(database)}.*")
            remedy = f"{sql} or exclude the database in the YAML"
            yield Check("tables in sight", False, finding, remedy, {GRANTS: [sql]})
    hidden = [name for name in _stored(subject) if config.included(name) and name not in visible]
    if hidden:
        more = f" and {len(hidden) - 1} more" if hidden[1:] else ""
        databases = dict.fromkeys(name.database for name in hidden)
        grants = [grant_sql(subject, "SELECT", f"{grant_quote(database)}.*") for database in databases]
        finding = f"the account can't see {hidden[0]}{more}, which is included"
        yield Check("tables in sight", False, finding, " ".join(grants), {GRANTS: grants})


def _stored(subject: Examined) -> list[TableName]:
    """Return InnoDB's tables, also those that the account can't read, with plain names; none where the account lacks
    PROCESS."""
    view = "INNODB_SYS_TABLES" if subject.source.is_mariadb else "INNODB_TABLES"
    try:
        rows = subject.source.query(f"SELECT name AS name FROM information_schema.{view}")
    except SourceError as error:
        if not denied(error):
            raise
        return []
    names = sorted(str(row["name"]) for row in rows)
    return [TableName(*name.split("/")) for name in names if _PLAIN_NAME.match(name)]


def connections(
    subject: Examined, config: PipelineConfig, cores: Callable[[], int] = available_cores
) -> Iterator[Check]:
    """Report an account that may open fewer connections than a run does."""
    most = int(subject.source.query("SELECT @@SESSION.max_user_connections AS most")[0]["most"])
    copying = config.snapshot.connections or cores()
    needed = max(copying, min(config.source.server_ids, cores())) + _CONTROLS
    if not most:
        return
    finding = f"the account may have {most} at once (MAX_USER_CONNECTIONS); a run has up to {needed}"
    if most >= needed:
        yield Check("connections", True, finding)
        return
    limit = f"ALTER USER {account_sql(subject)} WITH MAX_USER_CONNECTIONS {needed};"
    remedy = f"{limit} or set snapshot.connections and source.server_ids in the YAML to {max(1, most - _CONTROLS)}"
    yield Check("connections", False, finding, remedy)
