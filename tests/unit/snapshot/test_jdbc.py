"""What goes to Connector/J: names as data, the password apart, TLS as the connection says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binlake.errors import ConfigurationError
from binlake.schema.table import Column, Index, TableName, TableSchema
from binlake.snapshot import jdbc
from binlake.snapshot.bounds import Edge
from binlake.source.endpoint import Endpoint

HERE = Endpoint("127.0.0.1", 3306, "me", "se,cr;et'&")


def test_names_are_quoted_and_columns_numbered() -> None:
    schema = TableSchema((Column("i d`", "int"), Column("v", "varchar", length=3)), ("i d`",), "primary")
    query = jdbc.chunk_query(TableName("a.b", "c`d"), schema, None, None)
    values = "`i d``` + 0 AS c0, CONVERT(CONVERT(`v` USING utf8mb4) USING binary) AS c1"
    assert query == f"SELECT {values} FROM `a.b`.`c``d` FORCE INDEX (`PRIMARY`)"


def test_bounds_are_ranges_of_the_key() -> None:
    schema = TableSchema((Column("i`d", "int"),), ("i`d",), "primary")
    query = jdbc.chunk_query(TableName("d", "t"), schema, (Edge("i`d", "-5"),), (Edge("i`d", "7"),))
    assert query == "SELECT `i``d` + 0 AS c0 FROM `d`.`t` FORCE INDEX (`PRIMARY`) WHERE `i``d` >= -5 AND `i``d` < 7"
    alone = replace(schema, key_kind="unique", indexes=(Index("u`", ("i`d",), (None,), unique=True),))
    query = jdbc.chunk_query(TableName("d", "t"), alone, (Edge("i`d", "-5"),), None)
    assert query.endswith("`t` FORCE INDEX (`u```) WHERE `i``d` >= -5")
    keyless = replace(schema, key=(), key_kind="none")
    assert jdbc.chunk_query(TableName("d", "t"), keyless, None, None).endswith("`t`")


def test_the_password_is_an_option_alone() -> None:
    options = jdbc.connection_options(HERE, mariadb=False)
    assert [name for name, value in options.items() if HERE.password in value] == ["password"]


@pytest.mark.parametrize(("mariadb", "isolation"), [(True, "tx_isolation"), (False, "transaction_isolation")])
def test_sessions_are_repeatable_and_in_utc(mariadb: bool, isolation: str) -> None:
    variables = jdbc.connection_options(HERE, mariadb=mariadb)["sessionVariables"].split(",")
    assert f"{isolation}='REPEATABLE-READ'" in variables
    assert "time_zone='+00:00'" in variables


@pytest.mark.parametrize(
    ("host", "tls", "mode"),
    [
        ("127.0.0.1", (), "DISABLED"),
        ("::1", (), "DISABLED"),
        ("localhost", (), "DISABLED"),
        ("db.example", (), "PREFERRED"),
        ("db.example", (("verify_mode", "none"),), "REQUIRED"),
        ("db.example", (("check_hostname", "false"),), "VERIFY_CA"),
        ("db.example", (("check_hostname", "true"),), "VERIFY_IDENTITY"),
    ],
)
def test_tls(host: str, tls: tuple[tuple[str, str], ...], mode: str) -> None:
    assert jdbc.connection_options(replace(HERE, host=host, tls=tls), mariadb=False)["sslMode"] == mode


@pytest.mark.parametrize(
    ("host", "tls", "allowed", "refused"),
    [
        ("127.0.0.1", (), False, False),
        ("db.example", (), False, True),
        ("db.example", (), True, False),
        ("db.example", (("verify_mode", "none"),), False, True),
        ("db.example", (("check_hostname", "true"),), False, False),
    ],
)
def test_an_unproved_server_does_not_get_the_password(
    host: str, tls: tuple[tuple[str, str], ...], allowed: bool, refused: bool
) -> None:
    where = replace(HERE, host=host, tls=tls, allow_cleartext=allowed)
    options = jdbc.connection_options(where, mariadb=False)
    assert (options.get("allowPublicKeyRetrieval") == "false") is refused
    disabled = options.get("disabledAuthenticationPlugins", "").split(",")
    for plugin in ("mysql_clear_password", "sha256_password", "caching_sha2_password"):
        assert (plugin in disabled) is refused


def test_hosts_by_address() -> None:
    assert jdbc.connection_options(replace(HERE, host="::1"), mariadb=False)["url"] == "jdbc:mysql://[::1]:3306/"


def test_unreadable_certificates_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"/nowhere/ca\.pem"):
        jdbc.connection_options(replace(HERE, tls=(("ca", "/nowhere/ca.pem"),)), mariadb=False)
