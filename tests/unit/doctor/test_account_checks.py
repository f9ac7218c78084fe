"""What doctor says of an account whose grants look right, and that can't do all the same."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.config import PipelineConfig
from binlake.doctor import account_checks
from binlake.doctor.check import missing_grants
from binlake.doctor.server_checks import Examined, whole_log
from binlake.schema.table import TableName
from recorded_server import DENIED, RecordedServer

MYSQL, MARIADB = "9.7.4", "11.8.6-MariaDB"
CONFIG = PipelineConfig.model_validate(
    {
        "source": {"name": "shop", "connection": "shop", "server_id": 4000},
        "tables": {"include": ["shop.*", "b*.t"], "exclude": ["shop.secret"]},
        "lake": {"path": "/lake"},
    }
)


def examined(version: str, **answers: Any) -> Examined:
    renamed = {"grants": "SHOW GRANTS", "role": "SELECT CURRENT_ROLE() AS role"}
    return Examined(RecordedServer(version, {}, {renamed.get(name, name): rows for name, rows in answers.items()}), {})


def grants(*texts: str) -> list[dict[str, str]]:
    return [{"Grants": text} for text in texts]


@pytest.mark.parametrize(
    ("version", "granted", "current", "remedy"),
    [
        (MYSQL, "GRANT `reader`@`%` TO `binlake`@`%`", "NONE", "SET DEFAULT ROLE ALL TO `binlake`@`%`;"),
        (MYSQL, "GRANT `a`@`%`,`reader`@`%` TO `binlake`@`%`", "`a`@`%`", "SET DEFAULT ROLE ALL TO `binlake`@`%`;"),
        (MARIADB, "GRANT `reader` TO `binlake`@`%`", None, "SET DEFAULT ROLE `reader` FOR `binlake`@`%`;"),
    ],
)
def test_a_role_that_is_granted_and_not_active(version: str, granted: str, current: str, remedy: str) -> None:
    texts = grants("GRANT USAGE ON *.* TO `binlake`@`%`", granted)
    (check,) = account_checks.roles(examined(version, grants=texts, role=[{"role": current}]))
    assert (check.ok, check.remedy) == ("warn", remedy)
    assert "reader: granted, but not active" in check.found


@pytest.mark.parametrize(("version", "current"), [(MYSQL, "`reader`@`%`"), (MARIADB, "reader")])
def test_an_active_role(version: str, current: str) -> None:
    texts = grants("GRANT `reader`@`%` TO `binlake`@`%`" if version == MYSQL else "GRANT `reader` TO `binlake`@`%`")
    (check,) = account_checks.roles(examined(version, grants=texts, role=[{"role": current}]))
    assert check.ok is True


def test_an_account_without_roles_is_asked_nothing_more() -> None:
    assert list(account_checks.roles(examined(MYSQL, grants=grants("GRANT SELECT ON *.* TO `binlake`@`%`")))) == []


@pytest.mark.parametrize(("database", "is_included"), [("shop", True), ("books", True), ("other", False)])
def test_a_grant_that_is_revoked_in_part(database: str, is_included: bool) -> None:
    texts = grants("GRANT SELECT ON *.* TO `binlake`@`%`", f"REVOKE SELECT ON `{database}`.* FROM `binlake`@`%`")
    subject = examined(MYSQL, **{"grants": texts, "information_schema.INNODB_TABLES": DENIED})
    checks = list(account_checks.unseen_tables(subject, CONFIG, ()))
    assert [check.ok for check in checks] == [False] * is_included
    assert all(f"SELECT is revoked on {database}" in check.found for check in checks)


def test_included_tables_that_the_server_has_and_the_account_cant_see() -> None:
    stored = [
        {"name": name} for name in ("shop/t", "shop/hidden", "shop/secret", "bank/t", "mysql/user", "shop/t#p#p0")
    ]
    subject = examined(MARIADB, **{"grants": grants(), "information_schema.INNODB_SYS_TABLES": stored})
    (check,) = account_checks.unseen_tables(subject, CONFIG, {TableName("shop", "t")})
    assert (check.ok, check.found) == (False, "the account can't see bank.t and 1 more, which is included")
    grants_of_both = [f"GRANT SELECT ON `{database}`.* TO `binlake`@`%`;" for database in ("bank", "shop")]
    assert (check.remedy, missing_grants([check, check])) == (" ".join(grants_of_both), grants_of_both)


@pytest.mark.parametrize(("most", "ok"), [(0, None), (5, False), (6, True)])
def test_the_connections_that_an_account_may_open(most: int, ok: bool | None) -> None:
    subject = examined(MYSQL, **{"SELECT @@SESSION.max_user_connections AS most": [{"most": most}]})
    checks = list(account_checks.connections(subject, CONFIG, lambda: 4))
    assert [check.ok for check in checks] == ([] if ok is None else [ok])
    if ok is False:
        assert "ALTER USER `binlake`@`%` WITH MAX_USER_CONNECTIONS 6;" in checks[0].remedy
        assert "to 3" in checks[0].remedy


@pytest.mark.parametrize(("value", "warned"), [("1", False), ("2", True), ("0", True)])
def test_a_server_whose_tables_may_lose_what_the_log_has(value: str, warned: bool) -> None:
    subject = Examined(RecordedServer(MYSQL), {"innodb_flush_log_at_trx_commit": value})
    checks = [check for check in whole_log(subject, ()) if check.name == "innodb_flush_log_at_trx_commit"]
    assert [check.ok for check in checks] == ["warn"] * warned
