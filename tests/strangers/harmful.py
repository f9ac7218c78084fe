"""Statements that aren't fed, each with the reason; and those that would do nothing."""

from __future__ import annotations

import re

_OWN = "the run needs it as it is"
_RULES: list[tuple[str, str]] = [
    (r"(shutdown|restart)\b", "ends the server"),
    (r"(reset|purge)\b", "takes the log away that the mirror reads"),
    (r"(change\s+(master|replication)|(start|stop)\s+(all\s+)?(slave|replica|group_replication))\b", "replication"),
    (r"kill\b", "ends connections of the run"),
    (r"(install|uninstall)\b", "changes the server for all that follow"),
    (r"clone\b", "replaces the server's data"),
    (r"load\s+(data|xml|index)\b", "needs files of the suite"),
    (r"(.*\s)?into\s+(outfile|dumpfile)\b", "writes files"),
    (r"flush\s+(local\s+|no_write_to_binlog\s+)?tables?\b.*\b(read\s+lock|export)\b", "locks the server"),
    (r"lock\s+instance\b|backup\s+(stage|lock|unlock)\b", "locks the server"),
    (r"set\b.*\bsql_log_(bin|off)\b", "is in no log"),
    (r"set\b.*\b(debug|debug_sync|debug_dbug)\b", "the servers have no debugging"),
    (r"set\b.*(\bglobal\b|@@global\.|\bpersist(_only)?\b).*\b(\w*binlog\w*|\w*log_\w+|log_output|general_log|gtid\w*|"
     r"\w*replica\w*|\w*slave\w*|\w*master\w*|rpl_\w+|read_only|super_read_only|transaction_read_only|tx_read_only|"
     r"innodb_\w*|offline_mode|event_scheduler|server_id|max_\w*connections|connect_timeout|\w*storage_engine|"
     r"require_secure_transport|secure_\w+|autocommit|default_password_lifetime|\w*authentication\w*|"
     r"\w*lock_wait_timeout|wait_timeout|net_\w+|interactive_timeout|keyring\w*|validate_\w*|password_\w*|"
     r"partial_revokes|mandatory_roles|init_connect|init_slave|max_allowed_packet|thread_\w+|performance_schema\w*|"
     r"default_table_encryption|table_encryption\w*|tmp_table_size|temptable\w*|proxy\w*|protocol_\w*|admin_\w*|"
     r"ssl_\w*|tls_\w*|plugin_\w*|optimizer_disk\w*|userstat|aria\w*|key_\w*|wsrep\w*|feedback\w*|"
     r"extra_\w*|skip_\w*|simulate\w*|require\w*|local_infile|terminology\w*)\b", _OWN),
    (r"(drop|alter|create(\s+or\s+replace)?)\s+(database|schema)\s+(if\s+(not\s+)?exists\s+)?"
     r"`?(mysql|sys|information_schema|performance_schema)\b", _OWN),
    (r"use\s+`?(mysql|sys|information_schema|performance_schema)\b", _OWN),
    (r"(insert|replace|update|delete|truncate|alter|drop|rename|create|lock|flush|optimize|repair|analyze|load)\b"
     r".*[\s,(]`?(mysql|sys|performance_schema)`?\s*\.", _OWN),
    (r"(drop\s+user|rename\s+user)\b", _OWN),
    (r"(grant|revoke|alter\s+user|set\s+password|create\s+user|set\s+default\s+role)\b.*\broot\b", _OWN),
    (r"(revoke\s+all|alter\s+user\s+(user|current_user)\b|set\s+password\s*=|set\s+role\b|set\s+default\s+role)", _OWN),
    (r"(create|alter|drop)\s+(undo\s+|logfile\s+)?(tablespace|group|server|resource\s+group|instance)\b", _OWN),
    (r"alter\s+instance\b", _OWN),
    (r"(create|alter)\s+(or\s+replace\s+)?(definer\s*=\s*\S+\s+)?event\b", "would run while tables are compared"),
    (r"handler\b|help\b", "reads"),
    (r"(show|describe|desc|explain|check\b|checksum|analyze\s+(format|select|update|delete|insert))\b", "reads"),
    (r"(.*\b)?sleep\s*\(\s*\d{2,}", "takes too long"),
    (r"(.*\b)?benchmark\s*\(", "takes too long"),
    (r"(.*\b)?(get_lock|release_all_locks|wait_for_executed_gtid_set|master_pos_wait|source_pos_wait)\s*\(",
     "waits for others"),
]  # fmt: skip
_COMPILED = [(re.compile(rule, re.IGNORECASE | re.DOTALL), reason) for rule, reason in _RULES]
_COMMENTS = re.compile(r"\A(\s|/\*(?![!M]).*?\*/|(--\s|#)[^\n]*(\n|\Z)|\()*", re.DOTALL)
_READS = re.compile(r"(select|with|values|table)\b", re.IGNORECASE)
_CREATES_AND_CALLS = re.compile(r"create\s+(or\s+replace\s+)?table\b.*\bselect\b", re.IGNORECASE | re.DOTALL)
_WRITES = re.compile(r":=|\binto\b|nextval|lastval|setval|next\s+value|last_insert_id\s*\(\s*\w", re.IGNORECASE)


def bare(statement: str) -> str:
    """Without the comments and brackets that it begins with."""
    return statement[_found.end() :] if (_found := _COMMENTS.match(statement)) else statement


def reason_to_skip(statement: str, functions: set[str]) -> str | None:
    """Why it isn't fed; None: it is. functions: names, in lower case, of stored functions that a SELECT may call."""
    text = bare(statement)
    if not text:
        return "nothing"
    for rule, reason in _COMPILED:
        if rule.match(text):
            return reason
    if _CREATES_AND_CALLS.match(text) and functions & set(re.findall(r"\w+", text.lower())):
        return "where it fails, MariaDB keeps what its functions wrote to other tables, and logs nothing"
    if _READS.match(text) and not _WRITES.search(text):
        words = set(re.findall(r"\w+", text.lower()))
        if not words & functions and not re.search(r"\b(update|delete|insert)\b", text, re.IGNORECASE):
            return "reads"
    return None
