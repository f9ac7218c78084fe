"""A server of another release: what it answers to each statement, as its manual and its source say.

It is in for the connection alone, where no such server can be had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from binlake.errors import AccessDenied, SourceError
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source

Row = dict[str, Any]
DENIED = "denied"
"""In the place of rows: the account may not ask."""

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LOG_STATUS: Row = {
    "File": "binlog.000002", "Position": 1307, "Binlog_Do_DB": "", "Binlog_Ignore_DB": "",
    "Executed_Gtid_Set": f"{UUID}:1-5",
}  # fmt: skip

MARIADB_GTIDS = "SELECT @@GLOBAL.gtid_binlog_pos AS gtid, @@GLOBAL.gtid_slave_pos AS replicated"


def statements_of(version: str) -> dict[str, list[Row]]:
    """Return what a server of that version knows; a statement that isn't here is a syntax error there.

    Names of columns: sql/rpl_source.cc (8.0.37: show_replicas writes Server_Id for both statements), SHOW SLAVE HOSTS
    of the manuals before.
    """
    mariadb = "MariaDB" in version
    numbers = tuple(int(part) for part in version.partition("-")[0].split("."))
    answers: dict[str, list[Row]] = {}
    if mariadb or numbers < (8, 4):
        answers["SHOW MASTER STATUS"] = [LOG_STATUS]
        new = not mariadb and numbers >= (8, 0, 22)
        answers["SHOW SLAVE HOSTS"] = [{"Server_Id" if new else "Server_id": 4001, "Host": "binlake/shop"}]
    if not mariadb and numbers >= (8, 2):
        answers["SHOW BINARY LOG STATUS"] = [LOG_STATUS]
    if not mariadb and numbers >= (8, 0, 22):
        answers["SHOW REPLICAS"] = [{"Server_Id": 4001, "Host": "binlake/shop"}]
        answers["SHOW REPLICA STATUS"] = []
    if mariadb:
        answers["SHOW ALL SLAVES STATUS"] = []
        answers[MARIADB_GTIDS] = [{"gtid": "0-1-5", "replicated": ""}]
    elif numbers < (8, 4):
        answers["SHOW SLAVE STATUS"] = []
    if not mariadb and numbers >= (8, 0, 30):
        answers["SET SESSION show_gipk_in_create_table_and_information_schema = ON"] = []
    if not mariadb and numbers >= (8, 0):
        answers["SET SESSION information_schema_stats_expiry = 0"] = []
    return answers


class RecordedServer(Source):
    """answers: to further statements, or in the place of what the version answers; those to questions about
    information_schema by the view's name."""

    def __init__(
        self,
        version: str,
        variables: Mapping[str, str] | None = None,
        answers: Mapping[str, list[Row] | str] | None = None,
    ) -> None:
        self._variables = variables or {}
        self._answers: dict[str, list[Row] | str] = {
            "SELECT VERSION() AS version, @@server_id AS server_id, @@hostname AS hostname": [
                {"version": version, "server_id": 1, "hostname": "db"}
            ],
            "SELECT @@server_uuid AS id": [{"id": UUID}],
            "SELECT CURRENT_USER() AS user": [{"user": "binlake@%"}],
            **statements_of(version),
            **(answers or {}),
        }
        self.asked: list[str] = []
        super().__init__(Endpoint("db", 3306, "binlake", ""), None)  # type: ignore[arg-type]

    def query(self, sql: str, args: Sequence[object] | None = None) -> list[Row]:
        self.asked.append(sql)
        if sql.startswith("SHOW GLOBAL VARIABLES"):
            known = [name for name in args or () if name in self._variables]
            return [{"Variable_name": name, "Value": self._variables[str(name)]} for name in known]
        view = re.search(r"information_schema\.\w+", sql)
        answer = self._answers.get(view[0] if view else sql)
        if answer is None:
            raise SourceError(f"error 1064: near {sql!r}", remedy="")
        if answer == DENIED:
            raise AccessDenied("denied", remedy="")
        assert not isinstance(answer, str)
        return answer
