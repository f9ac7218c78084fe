"""The catalog as its clients see it: two batches side by side, each as Delta's readers see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from authority import Authority
from binlake.cli import command_line
from binlake.lake.duckdb_views import load_extension
from binlake.names import ansi_quote, ansi_string
from binlake.schema.table import TableName
from iceberg_readers import READERS, by_delta, duckdb_connection, ordered
from own_catalog import running
from plain_table import PlainTable
from published_lake import PublishedLake, appending

ORDERS, CUSTOMERS = TableName("shop", "orders"), TableName("shop", "cus'to \"mers")
COLUMNS = [("id", "INT"), ("v", "STRING")]


def moved(table: PlainTable) -> None:
    """Rows go, and columns change their places and names."""
    table.hide({table.files[0]["path"]: [0, 2]})
    table.reshape([("v", "STRING", "v"), ("number", "INT", "id"), ("note", "STRING", None)])
    table.append([{"v": "d", "number": 9, "note": "n"}])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> PublishedLake:
    lake = PublishedLake(tmp_path_factory.mktemp("lake"), dict.fromkeys((ORDERS, CUSTOMERS), COLUMNS))
    lake.batch({ORDERS: appending(*({"id": number, "v": f"v{number}"} for number in range(5)))})
    lake.batch({CUSTOMERS: appending({"id": 1, "v": None})})
    lake.batch({ORDERS: moved, CUSTOMERS: appending({"id": 2, "v": "x"})})
    return lake


@dataclass(frozen=True)
class Guarded:
    """A catalog that asks for a secret, over TLS. authority: the file of who signed its certificate."""

    address: str
    authority: str


ALL, ORDERS_ONLY = "6f1c0d3ab0e94d55a1f7c8b29e3d4f60", "0d3ab0e94d55a1f7c8b29e3d4f606f1c"


@pytest.fixture(scope="module")
def guarded(lake: PublishedLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("secrets")
    authority = Authority.made(folder, "authority")
    certificate, key = authority.sign("catalog")
    clients = folder / "clients"
    clients.write_text(f"everyone {ALL} *\norders {ORDERS_ONLY} shop:shop.orders\n")
    for private in (key, clients):
        private.chmod(0o600)
    options = ["--clients-file", f"{clients}", "--tls-certificate", f"{certificate}", "--tls-key", f"{key}"]
    with running("--config", lake.write_yaml(), *options, "--host", "0.0.0.0") as address:
        yield Guarded(address.replace("0.0.0.0", "127.0.0.1"), f"{authority.pem}")


@pytest.fixture(scope="module")
def address(lake: PublishedLake) -> Iterator[str]:
    with running("--config", lake.write_yaml()) as address:
        yield address


@pytest.mark.skipif("DuckDB" not in READERS, reason="DuckDB's extension isn't installed")
def test_duckdb_reads_two_batches_in_one_query(lake: PublishedLake, address: str) -> None:
    connection = duckdb_connection().cursor()
    load_extension(connection, "httpfs")
    for batch in lake.versions:
        connection.execute(f"ATTACH 'shop@{batch}' AS b{batch} (TYPE iceberg, ENDPOINT {ansi_string(address)}, "
                           "AUTHORIZATION_TYPE 'none')")  # fmt: skip
    try:
        for batch, versions in lake.versions.items():
            for name, version in versions.items():
                query = f"FROM b{batch}.shop.{ansi_quote(name.table)}"
                assert ordered(pa.table(connection.execute(query).arrow())) == by_delta(lake.tables[name].path, version)
        both = "FROM b1.shop.orders AS a FULL JOIN b3.shop.orders AS b ON a.id = b.number SELECT a.v, b.v"
        pairs = {(f"v{number}", f"v{number}" if number in (1, 3, 4) else None) for number in range(5)} | {(None, "d")}
        assert set(connection.execute(both).fetchall()) == pairs
        columns = "SELECT column_name FROM duckdb_columns() WHERE database_name = 'b1' AND table_name = 'orders'"
        assert connection.execute(columns).fetchall() == [("id",), ("v",)]
        with pytest.raises(Exception, match="can only be read"):
            connection.execute("CREATE SCHEMA b3.other")
        with pytest.raises(Exception, match="NotFound_404"):  # it doesn't repeat what is said
            connection.execute(f"ATTACH 'shop@7' AS b7 (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')")
    finally:
        for batch in lake.versions:
            connection.execute(f"DETACH b{batch}")


@pytest.mark.skipif("pyiceberg" not in READERS, reason="pyiceberg isn't installed")
def test_pyiceberg_reads_each_batch(lake: PublishedLake, address: str) -> None:
    from pyiceberg.catalog.rest import RestCatalog

    for batch, versions in lake.versions.items():
        catalog = RestCatalog("c", uri=address, warehouse=f"shop@{batch}")
        assert catalog.list_namespaces() == [("shop",)]
        assert sorted(catalog.list_tables("shop")) == sorted((name.database, name.table) for name in versions)
        assert catalog.table_exists(("shop", "orders"))
        assert not catalog.table_exists(("shop", "lost"))
        for name, version in versions.items():
            read = catalog.load_table((name.database, name.table)).scan().to_arrow()
            assert ordered(read) == by_delta(lake.tables[name].path, version)
        with pytest.raises(Exception, match=r"can only be read|does not support"):
            catalog.drop_table(("shop", "orders"))


@pytest.mark.skipif("pyiceberg" not in READERS, reason="pyiceberg isn't installed")
def test_pyiceberg_shows_its_credential_or_a_token(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.exceptions import NoSuchTableError, OAuthError, UnauthorizedError

    def catalog(**shown: str) -> RestCatalog:
        oauth = f"{guarded.address}/v1/oauth/tokens"
        return RestCatalog("c", uri=guarded.address, warehouse="shop@1", **shown, **{"oauth2-server-uri": oauth})

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", guarded.authority)
    for shown in ({"credential": f"everyone:{ALL}"}, {"credential": ALL}, {"token": ALL}):
        assert sorted(name for _, name in catalog(**shown).list_tables("shop")) == [CUSTOMERS.table, ORDERS.table]
    for shown in ({"credential": f"orders:{ORDERS_ONLY}"}, {"credential": f"everyone:{ALL}", "scope": "shop:*.orders"}):
        limited = catalog(**shown)
        assert limited.list_tables("shop") == [("shop", "orders")]
        assert limited.load_table("shop.orders").scan().to_arrow().num_rows == 5
        with pytest.raises(NoSuchTableError):
            limited.load_table(("shop", CUSTOMERS.table))
    with pytest.raises(UnauthorizedError):
        catalog()
    with pytest.raises(OAuthError, match="no client has this id and secret"):
        catalog(credential=f"orders:{ALL}")


@pytest.mark.skipif("DuckDB" not in READERS, reason="DuckDB's extension isn't installed")
@pytest.mark.parametrize("shown", ["CLIENT_ID '{id}', CLIENT_SECRET '{secret}'", "TOKEN '{secret}'"])
def test_duckdb_shows_a_secret(guarded: Guarded, shown: str) -> None:
    connection = duckdb_connection().cursor()
    load_extension(connection, "httpfs")
    connection.execute(f"SET ca_cert_file = {ansi_string(guarded.authority)}")
    for client, secret in (("everyone", ALL), ("orders", ORDERS_ONLY)):
        words = shown.format(id=client, secret=secret)
        if "CLIENT_ID" in words:
            words += f", OAUTH2_SERVER_URI '{guarded.address}/v1/oauth/tokens'"
        connection.execute(f"CREATE OR REPLACE SECRET {client} (TYPE iceberg, {words})")
        connection.execute(f"ATTACH 'shop@1' AS {client} (TYPE iceberg, ENDPOINT '{guarded.address}', SECRET {client})")
    try:
        query = f"SELECT count(*) FROM {{}}.shop.{ansi_quote(CUSTOMERS.table)}"
        assert connection.execute(query.format("everyone")).fetchall() == [(0,)]
        assert connection.execute("SELECT count(*) FROM orders.shop.orders").fetchall() == [(5,)]
        with pytest.raises(Exception, match="does not exist"):
            connection.execute(query.format("orders"))
    finally:
        for client in ("everyone", "orders"):
            connection.execute(f"DETACH {client}")
            connection.execute(f"DROP SECRET {client}")
        connection.execute("RESET ca_cert_file")


@pytest.mark.skipif("DuckDB" not in READERS, reason="DuckDB's extension isn't installed")
def test_duckdb_repeats_why_a_table_is_refused(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path, {ORDERS: COLUMNS})
    lake.batch({ORDERS: appending({"id": 1, "v": "v"})})
    lake.batch({ORDERS: appending({"id": 2, "v": "v"})}, publishes=False)
    connection = duckdb_connection().cursor()
    load_extension(connection, "httpfs")
    with running("--config", lake.write_yaml()) as address:
        connection.execute(f"ATTACH 'shop' AS late (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')")
        try:
            with pytest.raises(Exception, match="isn't published at batch 2, its Delta version 2: take batch 1, which"):
                connection.execute("FROM late.shop.orders")
        finally:
            connection.execute("DETACH late")


def test_another_host_than_this_machine_is_refused(
    lake: PublishedLake, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command_line.run(["catalog", "--config", lake.write_yaml(), "--host", "0.0.0.0"]) == 2
    assert "asks nobody who he is, so it listens on this machine alone, not on 0.0.0.0" in capsys.readouterr().err
    assert command_line.run(["catalog", "--config", lake.write_yaml(), "--tls-key", "key.pem"]) == 2
    assert "name --tls-certificate and --tls-key" in capsys.readouterr().err
    (tmp_path / "plain.yaml").write_text(Path(lake.write_yaml()).read_text().replace("iceberg: {every: batch}", ""))
    assert command_line.run(["catalog", "--config", f"{tmp_path}/plain.yaml"]) == 2
    assert "aren't published as Iceberg tables" in capsys.readouterr().err
    assert command_line.run(["catalog", "--config", lake.write_yaml(), lake.write_yaml()]) == 2
    assert "of one name" in capsys.readouterr().err
