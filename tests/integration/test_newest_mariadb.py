"""What MariaDB has or does otherwise since 11.4: copied, followed, and found equal by verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.binlog.boundaries import transaction_boundaries
from binlake.doctor.server_checks import server_checks
from binlake.errors import CorruptEvent
from binlake.position import FIRST_OFFSET, Slice
from binlake.source.endpoint import Endpoint
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from binlake.source.server import Source
from mirror import Mirror, on_mariadb
from servers import Server

MIB = 1 << 20


@on_mariadb
def test_images_that_leave_out_what_the_image_before_has(mirror: Mirror) -> None:
    """binlog_row_image=FULL_NODUP, with and without a key, NULLs, a new key, and a change that is none; read while
    writers continue under innodb_snapshot_isolation, the default of 11.8."""
    assert mirror.server.variable("innodb_snapshot_isolation") == "1"
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), b MEDIUMBLOB, n INT, d DATETIME(3))",
        "CREATE TABLE keyless (v VARCHAR(20), n INT)",
        "INSERT INTO t VALUES (1, 'one', 'x', NULL, NOW(3)), (2, NULL, NULL, 2, NULL), (3, 'three', 'z', 3, NULL)",
        "INSERT INTO keyless VALUES ('one', 1), ('one', 1), (NULL, 2)",
    )
    mirror.snapshot()
    mirror.execute(
        "SET SESSION binlog_row_image = 'FULL_NODUP'",
        "UPDATE t SET v = 'eins', n = 1 WHERE id = 1",
        "UPDATE t SET n = NULL",
        "UPDATE t SET id = 7 WHERE id = 2",
        "UPDATE t SET b = REPEAT('y', 70000), v = NULL WHERE id = 3",
        "UPDATE t SET v = v",
        "INSERT INTO t VALUES (4, 'four', 'w', 4, NULL)",
        "DELETE FROM t WHERE id = 1",
        "UPDATE keyless SET n = 3 WHERE v = 'one' LIMIT 1",
        "DELETE FROM keyless WHERE n = 2",
    )
    mirror.sync()
    mirror.assert_equal("t", "keyless")
    assert mirror.verify().equal


@on_mariadb
def test_a_transaction_so_large_that_its_file_is_renamed_into_the_log(mirror: Mirror) -> None:
    """binlog_large_commit_threshold, least 10 MiB: the transaction has a file of the log of its own."""
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)",
        "INSERT INTO t VALUES (0, 'before')",
    )
    mirror.snapshot()
    before = dict(mirror.server.execute("SHOW BINARY LOGS"))
    with mirror.server.setting("binlog_large_commit_threshold", 10 * MIB):
        mirror.execute(
            "INSERT INTO t VALUES (-1, 'small')",
            "BEGIN",
            *(f"INSERT INTO t VALUES ({number}, REPEAT('{number}', {MIB}))" for number in range(1, 13)),
            "UPDATE t SET b = 'changed' WHERE id = 3",
            "COMMIT",
            "INSERT INTO t VALUES (99, 'after')",
        )
    files = dict(mirror.server.execute("SHOW BINARY LOGS"))
    renamed = [file for file in files if file not in before and files[file] > 10 * MIB]
    assert renamed, "the transaction has a file of its own"
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.verify().equal
    with Source.open(mirror.endpoint) as source:
        part = Slice(renamed[0], FIRST_OFFSET, dict(source.binary_logs())[renamed[0]], 0, whole=False)
        first, *_ = transaction_boundaries(source.transport(), part)
        assert first.end_offset - first.start_offset > 10 * MIB


@on_mariadb
def test_uuids_of_every_version_and_vectors(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id UUID PRIMARY KEY, v VECTOR(3) NOT NULL, w VECTOR(2), n INT)",
        "INSERT INTO t VALUES (UUID(), VEC_FromText('[1.5, -0.5, 1e10]'), NULL, 1),"
        " (UUID_v4(), VEC_FromText('[0, 0, 0]'), VEC_FromText('[0, 1]'), 2),"
        " (UUID_v7(), x'000020c00000000000000000', x'0000000000000000', 3)",
    )
    mirror.snapshot()
    mirror.execute(
        "INSERT INTO t VALUES (UUID_v7(), VEC_FromText('[0.1, 1e-38, 0]'), NULL, 4),"
        " (UUID_v4(), VEC_FromText('[1, 2, 0]'), VEC_FromText('[0, 0]'), 5)",
        "UPDATE t SET w = VEC_FromText('[7, 0]'), n = n + 10 WHERE n < 3",
        "DELETE FROM t WHERE n = 3",
    )
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.watermark("t")["status"] == "following"
    mirror.options = {"merge": {"without_spark_mb": 0}}
    mirror.execute(
        "UPDATE t SET v = VEC_FromText('[2, 2, 2]') WHERE n = 5",
        "ALTER TABLE t ADD x VECTOR(1), ADD VECTOR INDEX (v)",
        "INSERT INTO t VALUES (UUID(), VEC_FromText('[9, 9, 9]'), NULL, 6, VEC_FromText('[5]'))",
        "CREATE TABLE born (v VECTOR(2), b VARBINARY(8))",
        "INSERT INTO born VALUES (VEC_FromText('[1, 2]'), 'bytes'), (NULL, NULL), (VEC_FromText('[1, 2]'), 'bytes')",
        "DELETE FROM born WHERE v IS NOT NULL LIMIT 1",
        "UPDATE t SET w = NULL WHERE n = 11",
        "DELETE FROM t WHERE n = 4",
    )
    mirror.sync()
    mirror.assert_equal("t", "born")
    assert mirror.verify().equal


@on_mariadb
def test_a_servers_own_folder_with_the_indexes_of_its_gtids(server: Server) -> None:
    """binlog_gtid_index, on since 11.4: a file NAME.idx beside each file of the log."""
    server.execute("FLUSH BINARY LOGS")
    assert list(server.datadir.glob("binlog.*.idx"))
    log = FolderLog(Folder(server.datadir))
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        assert [file for file, _ in log.binary_logs()] == [file for file, _ in source.binary_logs()]


def test_a_log_that_its_server_encrypts(new_server: type[Server], lake: Path, tmp_path: Path) -> None:
    """Switched on between two syncs; the server sends the log in the clear. Its files alone can't be read."""
    keys = tmp_path / "keys"
    keys.write_text(f"1;{'ab' * 32}\n")
    plugin = {"plugin_load_add": "file_key_management", "file_key_management_filename": str(keys)}
    with new_server("mariadb", **plugin) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        mirror = Mirror(server, "d", lake, spark=None, reader="direct")  # type: ignore[arg-type]
        mirror.options = {"merge": {"without_spark_mb": 16}}
        mirror.snapshot()
        mirror.execute("INSERT INTO t VALUES (1)")
        server.restart(encrypt_binlog=True)
        mirror.execute("INSERT INTO t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3)")
        mirror.sync()
        mirror.assert_equal("t")
        (check,) = [check for check in server_checks(mirror.endpoint) if check.name == "encrypt_binlog"]
        assert check.ok is True
        with pytest.raises(CorruptEvent, match="encrypted"):
            FolderLog(Folder(server.datadir)).head()
