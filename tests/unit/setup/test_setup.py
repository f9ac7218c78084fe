"""`binlake setup`: jars from a folder, checked, beside whatever the user keeps there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from binlake import versions
from binlake.cli import command_line
from binlake.errors import SetupFailed, UsageError
from binlake.report import Report
from binlake.setup import installation
from binlake.spark import java_program, settings
from binlake.versions import Jar

CONTENT = b"classes"
JAR = Jar("org.example", "stream", "2.0", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that lacks one jar; nothing is compiled in it."""
    monkeypatch.setattr(settings, "JARS", tmp_path / "share" / "jars")
    monkeypatch.setattr(installation, "jars", lambda: (JAR,))
    monkeypatch.setattr(installation, "_run", lambda command, what, **more: "")
    return tmp_path / "share" / "jars"


def given(tmp_path: Path, content: bytes = CONTENT) -> Path:
    """A folder as Maven lays it out."""
    folder = tmp_path / "repository" / "org" / "example" / "stream" / "2.0"
    folder.mkdir(parents=True)
    (folder / JAR.file).write_bytes(content)
    return tmp_path / "repository"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A java of JAVA_HOME, which tells of the options that it was given, as Java does."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "Picked up JAVA_TOOL_OPTIONS: $JAVA_TOOL_OPTIONS\nopenjdk version \\"17.0.9\\"" >&2\n'
    )
    program.chmod(0o755)
    return program


def test_of_javas_words_its_version_alone_is_told(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttp.proxyPassword=secret")
    assert java_program.java() == java_program.Java(str(java), 17, 'openjdk version "17.0.9"')


def test_a_java_that_can_not_be_run(java: Path, jars: Path) -> None:
    java.chmod(0o644)
    with pytest.raises(UsageError, match=r"bin/java is no program that runs: Permission denied, and binlake"):
        installation.set_up(Report())


def test_jars_come_from_a_folder(jars: Path, tmp_path: Path) -> None:
    assert installation.missing() == [JAR]
    installation.set_up(Report(), given(tmp_path), archive=False)
    assert [file.name for file in jars.iterdir()] == ["stream-2.0.jar"]
    assert installation.missing() == []


def test_other_versions_go_and_the_users_own_jars_stay(jars: Path, tmp_path: Path) -> None:
    jars.mkdir(parents=True)
    for name in ("stream-1.9.jar", "stream-extras-1.9.jar", "hadoop-aws-3.4.1.jar"):
        (jars / name).touch()
    installation.set_up(Report(), given(tmp_path), archive=False)
    assert sorted(file.name for file in jars.iterdir()) == [
        "hadoop-aws-3.4.1.jar",
        "stream-2.0.jar",
        "stream-extras-1.9.jar",
    ]


def test_a_jar_that_was_changed_is_refused(jars: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="SHA-256"):
        installation.set_up(Report(), given(tmp_path, b"other classes"), archive=False)
    assert not jars.exists()


def test_what_a_folder_lacks_is_named(jars: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"stream-2\.0\.jar isn't in .*\n.*org\.example:stream:2\.0"):
        installation.set_up(Report(), tmp_path, archive=False)


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11, and"),
        ("no JVM here", "no JVM here"),
        (None, "Java isn't installed"),
    ],
)
def test_java_must_be_there_and_fit(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, refusal: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    if said is not None:
        program = tmp_path / "java" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        program.chmod(0o755)
    with pytest.raises(UsageError, match=refusal):
        installation.set_up(Report(), archive=False)


def test_version_and_errors_of_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="0"):
        command_line.run(["--version"])
    assert capsys.readouterr().out.startswith("binlake 0.")


def test_this_environment_is_complete() -> None:
    assert installation.missing() == []
    assert all((settings.JARS / jar.file).is_file() for jar in versions.jars())
