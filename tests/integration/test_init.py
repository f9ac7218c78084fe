"""A new source: binlake init writes a YAML that passes the doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake import config
from binlake.cli import command_line
from servers import Server


def test_a_new_source(
    server: Server, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    file, lake = tmp_path / "pipelines" / "my-shop.yaml", tmp_path / "it's a lake"
    address = f"mysql://root@127.0.0.1:{server.port}/"
    init = ["init", "--connection", address, "--tables", f"{database}.*", "--lake", str(lake), str(file)]
    assert command_line.run(init) == 0
    said = capsys.readouterr().out
    assert f"export AIRFLOW_CONN_MY_SHOP_MYSQL='mysql://root:PASSWORD@127.0.0.1:{server.port}/'" in said
    assert "FAIL" not in said

    written = config.load(file)
    assert (written.source.name, written.lake.path) == ("my-shop", str(lake))
    assert written.tables.include == [f"{database}.*"]
    monkeypatch.setenv("AIRFLOW_CONN_MY_SHOP_MYSQL", address)
    assert command_line.run(["doctor", "--config", str(file)]) == 0

    assert command_line.run(init) == 2
    assert "is there already" in capsys.readouterr().err


def test_all_that_the_account_sees_by_default(server: Server, database: str, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    server.execute("CREATE DATABASE IF NOT EXISTS `it's`")
    command_line.run(
        ["init", "--connection", f"mysql://root@127.0.0.1:{server.port}/", "--lake", str(tmp_path), str(file)]
    )
    server.execute("DROP DATABASE `it's`")
    included = config.load(file).tables.include
    assert {f"{database}.*", "it's.*"} <= set(included)
    assert "mysql.*" not in included


def test_nobody_there_to_be_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["init", str(tmp_path / "new.yaml")]) == 2
    assert "give --connection" in capsys.readouterr().err
