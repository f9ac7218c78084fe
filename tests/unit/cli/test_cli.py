"""What all commands share: how they end, and how much they say."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from binlake import config, pipeline
from binlake.cli import command_line, installed_versions
from binlake.errors import UsageError
from binlake.lease import lease
from binlake.report import Report
from binlake.spark import settings
from binlake.store.metadata import metadata_of, now_us
from past import Past


def shop(folder: Path) -> str:
    """Write a source's YAML."""
    yaml = folder / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        "tables: {include: ['shop.*']}\nlake: {path: ./lake}\n"
    )
    return str(yaml)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def load(path: str) -> None:
        raise error

    monkeypatch.setattr(config, "load", load)


def test_who_interrupts_it_is_told_so_as_shells_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert command_line.run(["status", "--config", "x"]) == 130
    assert "nothing is lost" in capsys.readouterr().err


def test_a_sync_that_waits_for_its_server_ends_at_ctrl_c(tmp_path: Path) -> None:
    """The server takes the connection, and says nothing."""
    yaml = shop(tmp_path)
    Past(config.load(yaml), now_us()).write()
    command = [sys.executable, "-m", "binlake.cli.command_line", "sync", "--config", yaml]
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"mysql://u:p@127.0.0.1:{server.getsockname()[1]}/"
        environment = os.environ | {"AIRFLOW_CONN_SHOP_MYSQL": uri}
        server.settimeout(60)
        heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may have it ignored
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as syncing:
            signal.signal(signal.SIGINT, heard)
            connection, _ = server.accept()
            syncing.send_signal(signal.SIGINT)
            _, said = syncing.communicate(timeout=60)
            connection.close()
    assert syncing.returncode == 130
    assert said == "binlake: interrupted; run again to continue, nothing is lost\n"
    assert lease.read(metadata_of(config.load(yaml))).holder is None


STARTING = """
import os, signal, sys, types
{before}
os.environ["_ARGCOMPLETE"] = "1"
sys.modules["argcomplete"] = types.ModuleType("argcomplete")
def interrupted(name):
    os.kill(os.getpid(), signal.SIGINT)
    raise ImportError("what an extension module makes of it")
sys.modules["argcomplete"].__getattr__ = interrupted
from binlake.cli import start
{meanwhile}
sys.argv = ["binlake", "status", "--config", "x"]
start.main()
"""
"""Interrupted in the import of what ``binlake.cli.command_line`` imports, or by its first use."""


@pytest.mark.parametrize("during", ["imports", "work"])
def test_ctrl_c_in_the_first_second_is_one_line(during: str) -> None:
    at_import = "sys.modules['argcomplete'] = None; sys.meta_path.insert(0, types.SimpleNamespace("
    at_import += "find_spec=lambda name, *_: interrupted(name) if name == 'argparse' else None))"
    meanwhile = "sys.modules.pop('argparse', None)\n" + at_import if during == "imports" else ""
    before = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # who runs the tests may have it ignored
    program = STARTING.format(before=before, meanwhile=meanwhile)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "binlake: interrupted; run again to continue, nothing is lost\n")


class Panic(BaseException):
    """As pyo3's PanicException: no Exception."""


def test_a_panic_is_no_difference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, Panic("Invalid object store url"))
    assert command_line.run(["status", "--config", "x"]) == 3
    assert "unexpected Panic: Invalid object store url" in capsys.readouterr().err


def test_a_connection_that_breaks_is_no_reader_who_has_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, BrokenPipeError(32, "Broken pipe"))
    assert command_line.run(["status", "--config", "x"]) == 3
    assert "unexpected BrokenPipeError: [Errno 32] Broken pipe" in capsys.readouterr().err


def test_who_reads_no_further_ends_a_command_quietly() -> None:
    command = [sys.executable, "-m", "binlake.cli.command_line", "help", "operations"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as printing:
        assert printing.stdout is not None
        assert printing.stderr is not None
        printing.stdout.close()
        said = printing.stderr.read()
    assert (printing.returncode, said) == (0, b"")


@pytest.mark.parametrize("command", ["tail --config x", "binlog file:///nowhere"])
def test_a_table_without_its_database_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rows would be none."""
    with pytest.raises(SystemExit):
        command_line.run([*command.split(), "--table", "orders"])
    assert "'orders' has no dot; write database.table, such as shop.*" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "wrong", "said"),
    [
        ("doctor --minutes", ["soon", "nan", "-1"], "write a number of minutes, such as 5"),
        ("relay --port", ["70000", "-1", "http"], "write a number up to 65535"),
        ("relay --every", ["0", "nan", "1s"], "is no number above 0"),
        ("relay --keep-gb", ["-1", "inf"], "is no number above 0"),
        ("unlock --why", ["", " "], "write it in a few words: it is recorded"),
    ],
)
def test_what_an_option_can_not_be_is_refused(
    option: str, wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, name = option.split()
    for number in wrong:
        with pytest.raises(SystemExit):
            command_line.run([command, "--config", "x", f"{name}={number}"])
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(("options", "where"), [([], False), (["-v"], True)])
def test_where_an_unexpected_error_came_from(tmp_path: Path, options: list[str], where: bool) -> None:
    program = (
        "import sys\nfrom binlake import config\nfrom binlake.cli import command_line\n"
        "def load(path): raise RuntimeError('never seen')\n"
        "config.load = load\nsys.exit(command_line.run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "status", "--config", "x", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "unexpected RuntimeError: never seen" in done.stderr
    assert ("in load" in done.stderr) == where


def test_a_quiet_report_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(quiet=True)
    report.say("a line")
    with report.progress("copied") as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["sync", "status", "table pause", "unlock", "binlog", "init", "setup"])
def test_every_command_can_be_quiet(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.run([*command.split(), "--help"])
    assert "--quiet" in capsys.readouterr().out


def test_the_shell_completes_commands(tmp_path: Path) -> None:
    """As argcomplete's shell code asks."""
    answer = tmp_path / "answer"
    environment = {
        "PATH": str(Path(sys.executable).parent),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": "binlake ma",
        "COMP_POINT": "10",
    }
    subprocess.run([sys.executable, "-m", "binlake.cli.command_line"], env=environment, check=False)
    assert answer.read_text().strip() == "maintain"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("feed --forget", "no feed '' ever ran on shop"),
        ("tail --feed", "there is no feed ''"),
        ("unlock --why x --feed", "no feed  ran here"),
        ("history --table", "'' is no table's name"),
    ],
)
def test_an_option_that_is_given_empty_is_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    """A shell's variable that isn't set."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MYSQL", "mysql://u:p@127.0.0.1:1/")
    name, *options = command.split()
    assert command_line.run([name, "--config", shop(tmp_path), *options, ""]) == 2
    assert said in capsys.readouterr().err


def test_an_empty_range_of_keys_copies_no_whole_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ranges_alone(*_: object, **__: object) -> None:
        raise UsageError("a range is asked for")

    monkeypatch.setattr(pipeline, "snapshot_keys", ranges_alone)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MYSQL", "mysql://u:p@127.0.0.1:1/")
    assert command_line.run(["snapshot", "--config", shop(tmp_path), "--tables", "shop.orders", "--keys", ""]) == 2
    assert "a range is asked for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("snapshot --keys 1..2 --begin", "--begin begins a lake again"),
        ("verify --lake --by hash", "--by chooses how the server is compared with"),
        ("verify --iceberg --by read", "--by chooses how the server is compared with"),
        ("verify --self-test --by read", "--by chooses how the server is compared with"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    name, *options = command.split()
    assert command_line.run([name, "--config", shop(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err


def test_versions_of_what_is_there_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.run(["--version"])
    assert ended.value.code == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["binlake"] == metadata.version("binlake")
    assert shown["Python"].startswith(platform.python_version())
    for name, package in (("Spark", "pyspark"), ("Delta", "delta-spark"), ("deltalake", "deltalake")):
        assert shown[name] == metadata.version(package)
    assert "17" in shown["Java"] or "21" in shown["Java"]


def test_versions_of_what_is_missing_are_not_invented(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(settings, "JARS", tmp_path)
    monkeypatch.setattr(installed_versions, "PACKAGES", {"Airflow": "binlake-no-such-package"})
    with pytest.raises(SystemExit):
        command_line.run(["--version"])
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown.keys() == {"binlake", "Python", "Airflow", "Java", "jars"}
    assert shown["Airflow"] == shown["Java"] == "not installed"
    assert shown["jars"] == "3 missing: run binlake setup"
