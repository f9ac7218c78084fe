"""What this environment needs beside the wheel: Spark's extra jars, an archive of the classes that every session loads,
and the decoder's compiled kernels. All of it lands in ``share/binlake`` of the environment.

    jars       from a folder, or by the Ivy that pyspark ships, so that whoever keeps a mirror configures Ivy as usual;
               only files whose SHA-256 is the one of versions.py are taken, and jars of the user's own are left alone
    archive    classes of a short Spark session (the JVM's class-data sharing): a session starts in half the time
    kernels    compiled once here, so that no task pays for the compiler
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from binlake.errors import SetupFailed, UsageError
from binlake.lake import settings
from binlake.report import Report
from binlake.versions import JARS, JAVA, SPARK, Jar

COMMAND = "binlake setup"
_STAMP = settings.SHARED_ARCHIVE.with_suffix(".made-with")
_SAID = 30
"""Lines of a program that failed."""


@dataclass(frozen=True)
class Java:
    """The program that pyspark starts. major: 0 where it says nothing of its version. said: its first line."""

    program: str
    major: int
    said: str


def java() -> Java | None:
    """That of JAVA_HOME, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not program or not Path(program).exists():
        return None
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    match = re.search(r'version "(\d+)', said)
    return Java(program, int(match[1]) if match else 0, said.splitlines()[0] if said else "no answer")


def missing() -> list[Jar]:
    """Jars that aren't there; a file of the right name is only ever put there after its hash was checked."""
    return [jar for jar in JARS if not (settings.JARS / jar.file).is_file()]


def set_up(report: Report, folder: Path | None = None, *, archive: bool = True) -> None:
    """Whatever is missing; a second run finds nothing to do and needs no network.

    folder: holds the jars, at any depth, in the place of the network. Raises SetupFailed, UsageError.
    """
    found = java()
    if found is None or found.major < JAVA:
        what = f"{found.program} is {found.said}" if found else "no Java is found"
        raise SetupFailed(f"{what}: Spark needs Java {JAVA} or newer", remedy="install it, or set JAVA_HOME to one")
    wanted = missing()
    for jar in wanted:
        report.say(f"jar      {jar.name} {jar.version}")
        _remove_other_versions(jar)
        _put(_in_folder(jar, folder) if folder else None, jar, found)
    if archive and (wanted or not _archive_is_current(found)):
        report.say("classes  one short Spark session, whose classes are kept for faster starts")
        _make_archive(report, found)
    report.say("kernels  the decoder's, compiled where they aren't yet")
    _run([sys.executable, "-c", "import binlake.binlog; binlake.binlog.warm()"], "compiling the decoder's kernels")
    report.say(f"ready    {settings.SHARE}")


def _remove_other_versions(jar: Jar) -> None:
    """They would stand on the class path beside the new one."""
    for file in settings.JARS.glob(f"{jar.name}-[0-9]*.jar"):
        file.unlink()


def _in_folder(jar: Jar, folder: Path) -> Path:
    """Raises UsageError."""
    found = next(folder.rglob(jar.file), None)
    if found is None:
        raise UsageError(
            f"{jar.file} isn't in {folder}",
            remedy=f"put it there: {jar.organisation}:{jar.name}:{jar.version} as Maven names it",
        )
    return found


def _put(file: Path | None, jar: Jar, java: Java) -> None:
    """The jar, whole or not at all; resolved by Ivy where no file is given. Raises SetupFailed."""
    with tempfile.TemporaryDirectory(prefix="binlake-jar-") as folder:
        found = file or _resolved(jar, java, Path(folder))
        with found.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if digest != jar.sha256:
            raise SetupFailed(
                f"{found} has the SHA-256 {digest}, not {jar.sha256}",
                remedy="it isn't the file that was published: take another copy",
            )
        settings.JARS.mkdir(parents=True, exist_ok=True)
        partial = settings.JARS / f".{jar.file}.partial"
        shutil.copyfile(found, partial)
        partial.rename(settings.JARS / jar.file)


def _resolved(jar: Jar, java: Java, folder: Path) -> Path:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    # Java asks the password file for the home folder, where Ivy keeps its cache; HOME is what was meant.
    command = [java.program, f"-Duser.home={Path.home()}", "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-dependency", jar.organisation, jar.name, jar.version, "-notransitive", "-confs", "default"]
    command += ["-types", "jar", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    what = f"resolving {jar.organisation}:{jar.name}:{jar.version}"
    remedy = f"check the network, or give a folder that holds the jar: {COMMAND} --jars FOLDER"
    said = _run(command, what, remedy)
    if not (folder / jar.file).is_file():
        raise SetupFailed(f"{what} gave no file:\n{said}", remedy=remedy)
    return folder / jar.file


def _fingerprint(java: Java) -> str:
    """What an archive depends on: the JVM, the class path, the options it is used with."""
    listed = sorted(f"{file.name} {file.stat().st_size}" for file in settings.JARS.glob("*.jar"))
    return "\n".join([java.program, java.said, *listed, f"pyspark {SPARK}"]) + "\n"


def _archive_is_current(java: Java) -> bool:
    return settings.SHARED_ARCHIVE.is_file() and _STAMP.is_file() and _STAMP.read_text() == _fingerprint(java)


def _make_archive(report: Report, java: Java) -> None:
    """Raises SetupFailed where Spark can't run here."""
    settings.SHARED_ARCHIVE.unlink(missing_ok=True)
    fresh = settings.SHARED_ARCHIVE.with_suffix(".fresh")
    # Read by Spark's launcher for the driver's JVM; JAVA_TOOL_OPTIONS would reach its own too.
    options = {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={fresh} -Xlog:cds=off"}
    _run([sys.executable, "-m", "binlake.lake.warm"], "a short Spark session", environment=options)
    if not fresh.is_file():
        report.say("classes  this JVM keeps none; sessions start slower")
        return
    fresh.rename(settings.SHARED_ARCHIVE)
    _STAMP.write_text(_fingerprint(java))


def _run(
    command: list[str], what: str, remedy: str = "mend what it says above", environment: dict[str, str] | None = None
) -> str:
    """What a program says. Raises SetupFailed with its last lines."""
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = "\n".join(done.stdout.splitlines()[-_SAID:])
    if done.returncode:
        raise SetupFailed(f"{what} failed:\n{said}", remedy=remedy)
    return said
