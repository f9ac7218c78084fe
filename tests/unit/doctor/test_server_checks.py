"""Where releases of servers differ: what is asked of each, and what doctor says of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pymysql
import pytest
import yaml

from binlake.config import PipelineConfig
from binlake.doctor import server_checks
from binlake.doctor.check import Check
from binlake.doctor.preflight import _case_of_names, _delta_names, _Subject, _tables_exist, preflight
from binlake.doctor.server_checks import Examined
from binlake.errors import ServerSettingError, UnsupportedColumn
from binlake.position import Flavour
from binlake.schema.datatypes import arrow_type
from binlake.schema.table import Column, TableName, TableSchema
from binlake.source import releases
from binlake.source.catalog import SourceTable, read_schemas
from binlake.source.connection import translate
from binlake.source.folder import Folder
from binlake.source.gaps import log_gaps
from binlake.source.listed_tables import Listed
from binlake.source.read_lock import read_lock
from binlake.source.releases import AURORA, AZURE, CLOUD_SQL, RDS, SERIES, Release, service_of
from binlake.source.retention import headroom_seconds, kept_hours
from binlake.source.server import Replica, Source, replicas, version_numbers
from binlake.source.unlogged_cascades import unlogged_cascades
from recorded_server import DENIED, UUID, RecordedServer

PUBLIC = Path(__file__).parents[2] / "binlogs" / "public"
FOLLOWED = (
    "8.0.11", "8.0.21", "8.0.22", "8.0.26", "8.0.37-0ubuntu0.22.04.3", "8.0.34-26", "8.2.0", "8.3.0", "8.4.8-8",
    "9.0.1", "9.6.0", "9.7.4", "10.5.23-MariaDB-0+deb11u1", "10.11.14-MariaDB", "11.8.6-MariaDB", "12.3.3-MariaDB",
)  # fmt: skip


@pytest.mark.parametrize("version", FOLLOWED)
def test_each_release_is_asked_what_it_knows(version: str) -> None:
    source = RecordedServer(version, {"log_slave_updates": "OFF", "log_replica_updates": "OFF"})
    gtids = "0-1-5" if source.is_mariadb else f"{UUID}:1-5"
    assert source.head() == ("binlog.000002", 1307, gtids)
    assert replicas(source) == [Replica(4001, "binlake/shop")]
    assert log_gaps(source, ["shop"]) == []


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("8.0.25", "log_slave_updates"),
        ("8.0.26", "log_replica_updates"),
        ("8.4.0", "log_replica_updates"),
        ("10.11.14-MariaDB", "log_slave_updates"),
    ],
)
def test_a_replica_that_doesnt_log_is_told_by_its_settings_name(version: str, name: str) -> None:
    statement = "SHOW ALL SLAVES STATUS" if "MariaDB" in version else "SHOW REPLICA STATUS"
    source = RecordedServer(version, {name: "OFF"}, {statement: [{"Replica_IO_Running": "Yes"}]})
    (gap,) = log_gaps(source, ["shop"])
    assert f"{name}=ON" in gap.remedy


@pytest.mark.parametrize(
    ("version", "native", "logged"),
    [
        ("8.0.44", None, False),
        ("8.4.8", None, False),
        ("9.5.0", None, False),
        ("9.6.0", "OFF", True),
        ("9.6.0", "ON", False),
        ("9.7.4", None, True),
        ("11.8.6-MariaDB", None, False),
    ],
)
def test_cascades_are_in_the_log_from_9_6_on(version: str, native: str | None, logged: bool) -> None:
    source = RecordedServer(version, {"innodb_native_foreign_keys": native} if native else {})
    assert (unlogged_cascades(source, []) is None) == logged


@pytest.mark.parametrize(("version", "shown"), [("8.0.29", False), ("8.0.30", True), ("8.4.0", True)])
def test_generated_invisible_keys_are_shown_where_a_session_can_ask_for_it(version: str, shown: bool) -> None:
    asked = RecordedServer(version).asked
    assert ("SET SESSION show_gipk_in_create_table_and_information_schema = ON" in asked) == shown


@pytest.mark.parametrize(
    ("version", "grant"),
    [("8.0.22", "RELOAD"), ("8.0.23", "FLUSH_TABLES"), ("8.4.0", "FLUSH_TABLES"), ("10.11.14-MariaDB", "RELOAD")],
)
def test_the_grant_to_flush_has_had_a_name_of_its_own_since_8_0_23(version: str, grant: str) -> None:
    answers: dict[str, Any] = {
        "SHOW GRANTS": [{"Grants": "GRANT SELECT ON `shop`.* TO `binlake`@`%`"}],
        "XA RECOVER": [],
    }
    flush, _ = server_checks.snapshot_grants(Examined(RecordedServer(version, {}, answers), {}))
    assert flush.name == f"grant {grant}"
    assert flush.remedy.startswith(f"GRANT {grant} ON *.* TO ")


@pytest.mark.parametrize(
    ("version", "setting"),
    [
        ("10.5.23-MariaDB", ("expire_logs_days", "8")),
        ("10.6.20-MariaDB", ("binlog_expire_logs_seconds", "608400")),
        ("8.0.11", ("binlog_expire_logs_seconds", "608400")),
    ],
)
def test_the_log_is_kept_by_the_setting_that_the_release_has(version: str, setting: tuple[str, str]) -> None:
    flavour: Flavour = "mariadb" if "MariaDB" in version else "mysql"
    assert Release(flavour, version_numbers(version)).kept_log(169) == setting


def shape(version: str, *columns: dict[str, Any]) -> TableSchema:
    """Of the table shop.t, of whose columns information_schema says so."""
    name = TableName("shop", "t")
    of = {"d": name.database, "t": name.table, "comment": ""}
    nothing = dict.fromkeys(
        ("value", "extra", "charset", "length", "digits", "scale", "fraction", "expression")
    )  # fmt: skip
    source = RecordedServer(
        version,
        {},
        {
            "information_schema.tables": [
                {**of, "collation": columns[0]["table"], "kind": "BASE TABLE", "comment": ""}
            ],
            "information_schema.columns": [{**of, **nothing, "nullable": "YES", **column} for column in columns],
            "information_schema.statistics": [],
        },
    )
    return read_schemas(source, [name])[name]


def test_shapes_are_the_same_however_a_release_spells_them() -> None:
    """Widths of integers went in 8.0.19, utf8 became utf8mb3 in 8.0.28, and in collations in 8.0.30."""
    old = shape(
        "8.0.18",
        {"name": "id", "type": "int", "declared": "int(10) unsigned", "digits": 10, "scale": 0, "table": "utf8_bin"},
        {"name": "b", "type": "tinyint", "declared": "tinyint(1)", "digits": 3, "scale": 0},
        {"name": "y", "type": "year", "declared": "year(4)"},
        {"name": "v", "type": "varchar", "declared": "varchar(20)", "charset": "utf8", "length": 20},
    )
    new = shape(
        "8.0.44",
        {"name": "id", "type": "int", "declared": "int unsigned", "digits": 10, "scale": 0, "table": "utf8mb3_bin"},
        {"name": "b", "type": "tinyint", "declared": "tinyint(1)", "digits": 3, "scale": 0},
        {"name": "y", "type": "year", "declared": "year"},
        {"name": "v", "type": "varchar", "declared": "varchar(20)", "charset": "utf8mb3", "length": 20},
    )
    assert old == new
    assert (old.charset, old.column("v").charset, old.column("id").unsigned) == ("utf8mb3", "utf8mb3", True)


def test_a_type_that_is_new_is_refused_by_its_name() -> None:
    """XMLTYPE came with MariaDB 12.3; statements with it stop their table (tests/unit/ddl/test_statements.py)."""
    xml_shape = shape("12.3.3-MariaDB", {"name": "x", "type": "xmltype", "declared": "xmltype", "table": "utf8mb4_bin"})
    with pytest.raises(UnsupportedColumn, match="'x' has the type XMLTYPE") as refused:
        arrow_type(xml_shape.column("x"))
    assert "exclude the table" in refused.value.remedy


def test_columns_named_as_deltas_own_are_told_with_their_cost() -> None:
    def said(*columns: str) -> list[str]:
        shape_of = TableSchema(tuple(Column(column, "int") for column in columns))
        table = SourceTable(TableName("d", "t"), "BASE TABLE", "InnoDB", 1, 1, shape_of)
        checks = list(_delta_names(table, "table d.t"))
        assert all(check.ok == "warn" and "exclude" in check.remedy for check in checks)
        return [check.found for check in checks]

    assert said("id", "filePath") == []
    (whole,) = said("id", "_Row_Id_")
    assert "it is written whole" in whole
    (unread,) = said("id", "__delta_internal_is_row_deleted")
    assert "Spark can't read" in unread


REFUSED = ("5.7.44-log", "5.6.51", "10.4.34-MariaDB-1:10.4.34+maria~ubu2004", "5.5.5-10.3.39-MariaDB")


@pytest.mark.parametrize("version", REFUSED)
def test_a_release_that_cant_name_columns_is_refused_before_anything_is_asked(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerSettingError, match="binlog_row_metadata") as refused:
        RecordedServer(version)
    assert "upgrade the server" in refused.value.remedy
    monkeypatch.setattr(Source, "open", lambda endpoint: RecordedServer(version))
    (check,) = server_checks.server_checks(Any)  # type: ignore[arg-type]
    assert check == Check("server", False, refused.value.message, refused.value.remedy)


@pytest.mark.parametrize(
    ("version", "ok", "said"),
    [
        ("9.7.4", True, "MySQL 9.7 is proved"),
        ("9.8.0", "warn", "MySQL after 9.7 is expected to work"),
        ("26.10.0", "warn", "MySQL after 9.7 is expected to work"),
        ("8.0.44", "warn", "MySQL 8.0 is expected to work"),
        ("8.3.0", "warn", "MySQL 8.1 to 8.3 is expected"),
        ("8.4.8-8", "warn", "MySQL 8.4 is expected"),
        ("10.5.23-MariaDB", "warn", "MariaDB 10.5 is expected"),
        ("10.6.25-MariaDB", "warn", "MariaDB 10.6 to 10.10 is expected"),
        ("10.11.14-MariaDB", True, "MariaDB 10.11 is proved"),
        ("11.4.5-MariaDB", True, "MariaDB 11.4 is proved"),
        ("11.8.6-MariaDB", True, "MariaDB 11.8 is proved"),
        ("12.3.3-MariaDB", "warn", "MariaDB 12 is expected"),
    ],
)
def test_doctor_says_of_each_release_whether_it_is_proved(version: str, ok: bool | str, said: str) -> None:
    (check,) = server_checks.release(Examined(RecordedServer(version), {}))
    assert check.ok == ok
    assert check.found.startswith(said)
    assert bool(check.remedy) == (ok == "warn")


def test_doctor_says_so_of_the_server_that_wrote_a_folder_of_files(tmp_path: Path) -> None:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "files", "connection": f"file://{PUBLIC}", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )
    said = {}
    for version in ("8.0.36", "5.7.21"):
        folder = tmp_path / version
        folder.mkdir()
        blocks = (PUBLIC / f"mysql-{version}.txt").read_text(encoding="utf-8").split("BINLOG '\n")
        (folder / "binlog.000001").write_bytes(b"\xfebin" + base64.b64decode(blocks[1].partition("'")[0]))
        checks = preflight(config, Folder(folder), spark_checks=False)
        said[version] = next((check.ok, check.found) for check in checks if check.name == "release")
    assert said["8.0.36"] == ("warn", f"MySQL 8.0 is expected to work: {Release('mysql', (8, 0, 36)).series.why}")
    assert said["5.7.21"] == (False, f"MySQL 5.7 and before is refused: {Release('mysql', (5, 7, 21)).series.why}")


def test_every_series_has_a_name_and_a_reason_of_its_own_place() -> None:
    assert len({(series.flavour, series.since) for series in SERIES}) == len(SERIES)
    for flavour in ("mysql", "mariadb"):
        ordered = [series.since for series in SERIES if series.flavour == flavour]
        assert ordered == sorted(ordered)
        assert ordered[0] == (0, 0)
    assert all(series.why for series in SERIES)


@pytest.mark.parametrize(
    ("version", "variables", "service"),
    [
        ("8.0.43", {"basedir": "/rdsdbbin/mysql-8.0.43.R2/"}, RDS),
        ("10.11.9-MariaDB-log", {"basedir": "/rdsdbbin/mariadb-10.11.9.R1/"}, RDS),
        ("8.0.39", {"basedir": "/rdsdbbin/oscar-8.0.mysql_aurora.3.08/", "aurora_version": "3.08.0"}, AURORA),
        ("8.0.31-google", {"basedir": "/"}, CLOUD_SQL),
        ("8.0.37-azure", {"basedir": "/app/work/mysql/"}, AZURE),
        ("8.4.8-8", {"basedir": "/usr/"}, None),
        ("9.7.4", {}, None),
    ],
)
def test_a_service_is_known_by_what_it_calls_itself(version: str, variables: dict[str, str], service: Any) -> None:
    assert service_of(version, variables) is service


RDS_VARIABLES = {"basedir": "/rdsdbbin/mysql-8.0.43.R2/", "binlog_expire_logs_seconds": "2592000"}


def on_rds(hours: list[dict[str, Any]] | str) -> Examined:
    return Examined(RecordedServer("8.0.43", RDS_VARIABLES, {releases.RDS_RETENTION: hours}), RDS_VARIABLES)


@pytest.mark.parametrize(("hours", "ok"), [("168", True), ("2", False), (None, False)])
def test_amazon_keeps_the_log_by_a_table_of_its_own(hours: str | None, ok: bool) -> None:
    """The server's variable says thirty days there, whatever is kept."""
    subject = on_rds([{"hours": hours}])
    (check,) = server_checks.retention(subject, "0 * * * *")
    assert (check.ok, "binlog retention hours', 168" in check.remedy) == (ok, not ok)
    assert kept_hours(subject.source) == float(hours or 0)


@pytest.mark.parametrize(
    ("schedule", "hours"),
    [
        ("0 * * * *", 1),
        ("*/7 * * * *", 7 / 60),
        ("30 23 * * *", 24),
        ("*/5 8-18 * * 1-5", 61 + 5 / 60),
        ("0 12 * * 1", 7 * 24),
        ("*/10 * 1-20 * *", 11 * 24 + 10 / 60),
        ("0 3 * 1-6 1-5", 187 * 24),
    ],
    ids=str,
)
def test_the_log_is_needed_over_nights_weekends_and_months_without_runs(schedule: str, hours: float) -> None:
    assert server_checks.longest_pause_hours(schedule) == pytest.approx(hours)


@pytest.mark.parametrize(
    ("tables", "page"),
    [
        ({"include": ["Shop.*"]}, {}),
        ({"include": ["shop.*"], "modes": [{"tables": "Shop.orders", "history": {}}]}, {}),
        ({"include": ["shop.*"], "exclude_columns": ["shop.Orders.card"]}, {}),
        ({"include": ["shop.*"]}, {"mask_columns": ["shop.Orders.card"]}),
    ],
)
def test_patterns_in_upper_case_match_no_table_of_a_server_that_stores_names_in_lower_case(
    tables: dict[str, Any], page: dict[str, Any]
) -> None:
    source = {"name": "shop", "connection": "db", "server_id": 4001}
    config = PipelineConfig.model_validate(
        {"source": source, "tables": tables, "lake": {"path": "/lake"}, "page": page}
    )
    subject = _Subject(RecordedServer("8.0.43", {}, {}), {"lower_case_table_names": "1"}, config, [], {})
    (check,) = _case_of_names(subject)
    assert (check.ok, "write the patterns" in check.remedy) == (False, True)


@pytest.mark.parametrize("odd", ["odd*", "odd[1]", 'od"d', "od\\d", "odd?"])
def test_a_remedy_leaves_out_the_view_it_names_and_no_other(odd: str) -> None:
    include = {"include": ["shop.*", "my_crm.people"]}
    source = {"name": "shop", "connection": "shop_mysql", "server_id": 4001}
    settings: dict[str, Any] = {"source": source, "lake": {"path": "./lake"}}
    config = PipelineConfig.model_validate({**settings, "tables": include})
    listed = [
        Listed(TableName("shop", name), kind, "", 0, 0)
        for name, kind in {odd: "SYSTEM VERSIONED VIEW", "odd1": "BASE TABLE", "oddx": "BASE TABLE"}.items()
    ]
    subject = _Subject(RecordedServer("8.0.43", {}, {}), {}, config, listed, {})
    checks = {check.name: check for check in _tables_exist(subject)}
    assert r"GRANT SELECT ON `my\_crm`.* TO" in checks["table my_crm.people"].remedy
    _, _, written = checks[f"table shop.{odd}"].remedy.partition("in the YAML: ")
    config = PipelineConfig.model_validate({**settings, "tables": {**include, **yaml.safe_load(written)}})
    assert [config.included(table.name) for table in listed] == [False, True, True]


def test_where_amazon_doesnt_tell_the_account_nothing_is_promised() -> None:
    subject = on_rds(DENIED)
    (check,) = server_checks.retention(subject, None)
    assert check.ok == "warn"
    assert "rds_set_configuration" in check.remedy
    assert kept_hours(subject.source) is None
    assert headroom_seconds(subject.source, Any) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("service", releases.SERVICES, ids=lambda service: service.name)
def test_settings_of_a_service_are_made_where_it_has_them(service: releases.Service, monkeypatch: Any) -> None:
    """Nobody may SET GLOBAL there, nor flush tables with a read lock."""
    monkeypatch.setattr(Examined, "service", service)
    subject = Examined(RecordedServer("8.0.43", {}, {"XA RECOVER": []}), {"log_bin": "OFF", "binlog_format": "MIXED"})
    remedies = {check.name: check.remedy for check in server_checks.settings(subject)}
    assert remedies["log_bin"] == service.log_bin
    assert remedies["binlog_row_metadata"].startswith(f"set binlog_row_metadata = FULL {service.settings}")
    lock, _ = server_checks.snapshot_grants(subject)
    assert lock.ok is True
    assert "LOCK TABLES is used instead" in lock.found


class Refusing(RecordedServer):
    """A service's server, which lets tables be locked, and refuses more by an error of this number."""

    number = 0

    def query(self, sql: str, args: Any = None) -> list[dict[str, Any]]:
        if sql.startswith(("SET SESSION lock_wait_timeout", "LOCK TABLES", "UNLOCK TABLES")):
            self.asked.append(sql)
            return []
        if sql.startswith("SELECT CONNECTION_ID"):
            return [{"id": 7}]
        if "performance_schema" in sql:
            return []
        if sql == "FLUSH TABLES WITH READ LOCK":
            error = pymysql.err.OperationalError(self.number, "refused")
            raise translate(error, self.endpoint) from error
        return super().query(sql, args)

    def another(self) -> Source:
        return self

    def close(self) -> None:
        pass


@pytest.mark.parametrize("number", [1045, 1227, 1290])
def test_where_nobody_may_flush_the_tables_of_a_wave_are_locked(number: int) -> None:
    source = Refusing("8.0.31-google", {}, {"XA RECOVER CONVERT XID": []})
    source.number = number
    with read_lock(source, "flush", [TableName("shop", "t")]) as held:
        assert held.mode == "tables"
        assert source.asked[-2:] == ["LOCK TABLES `shop`.`t` READ", "XA RECOVER CONVERT XID"]
    assert source.asked[-1] == "UNLOCK TABLES"


def test_images_without_what_the_image_before_has_are_as_good_as_full() -> None:
    subject = Examined(RecordedServer("11.8.6-MariaDB"), {"binlog_row_image": "FULL_NODUP"})
    checks = {check.name: check for check in server_checks.settings(subject)}
    assert checks["binlog_row_image"].ok is True
    assert "binlog_storage_engine" not in checks


@pytest.mark.parametrize(
    ("version", "good"), [("26.10.0", True), ("9.7.4", True), ("8.0.33", False), ("11.8.6-MariaDB", False)]
)
def test_a_mysql_that_hasnt_binlog_format_any_more_logs_rows(version: str, good: bool) -> None:
    checks = {check.name: check for check in server_checks.settings(Examined(RecordedServer(version), {}))}
    assert checks["binlog_format"].ok is good
    assert checks["binlog_row_metadata"].ok is False


def test_a_log_in_pages_is_refused() -> None:
    subject = Examined(RecordedServer("12.3.3-MariaDB"), {"binlog_storage_engine": "innodb"})
    checks = {check.name: check for check in server_checks.settings(subject)}
    assert checks["binlog_storage_engine"].ok is False
    assert "restart" in checks["binlog_storage_engine"].remedy


ROOT = Path(__file__).parents[3]


def rows_below(heading: str, page: str) -> list[str]:
    """Of the page's table whose first line is this one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(heading) :].splitlines()[2:]
    return lines[: next(place for place, line in enumerate(lines) if not line.startswith("|"))]


def test_the_readme_has_the_table_of_releases() -> None:
    rows = [f"| {series.name} | {series.verdict} | {series.why} |" for series in SERIES]
    assert rows_below("| server | | why |", "README.md") == rows


def test_the_page_of_servers_has_the_table_of_services() -> None:
    rows = [
        f"| {service.name} | {service.log_bin} | {service.settings} "
        f"| {'`' + service.retention.format(hours=168) + '`' if service.retention else '`binlog_expire_logs_seconds`'} "
        f"| {service.remark} |"
        for service in releases.SERVICES
    ]
    assert rows_below("| service | the log | variables are set |", "jobs/binlake/source/README.md") == rows
