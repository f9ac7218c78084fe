"""Installation of what this environment needs beside the wheel, in ``share/binlake`` of the environment.

jars       Spark's extra jars, from a folder, or downloaded by the Ivy that pyspark ships, with the account's Maven
           settings (maven.py); only files with the SHA-256 in versions.py are taken, and other jars are left alone
archive    the classes that a Spark session loads (the JVM's class-data sharing), which halves the time of its start
kernels    of the decoder, compiled here once, so that no task has to
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from binlake.errors import SetupFailed, UsageError
from binlake.report import Report
from binlake.setup import maven
from binlake.spark import java_program, settings
from binlake.versions import Jar, installed_spark, jars, store_jars

COMMAND = "binlake setup"
_STAMP = settings.SHARED_ARCHIVE.with_suffix(".made-with")
_SAID = 30
"""How many last lines of a failed program are reported."""


def missing(stores: Collection[str] = ()) -> list[Jar]:
    """Return the jars that aren't installed, by file name: only files with the right hash are ever installed.

    stores: those of versions.STORES whose jars are needed, too.
    """
    wanted = [*jars(), *(jar for store in stores for jar in store_jars(store))]
    return [jar for jar in wanted if not (settings.JARS / jar.file).is_file()]


def set_up(report: Report, folder: Path | None = None, *, archive: bool = True, stores: Collection[str] = ()) -> None:
    """Install what is missing; a second run has nothing to do and needs no network.

    folder: take the jars from it, at any depth, instead of the network. stores: see ``missing``. Raises SetupFailed,
    UsageError.
    """
    installed = java_program.fitting()
    for store in stores:
        settings.refuse_store(store)
    wanted = missing(stores)
    with tempfile.TemporaryDirectory(prefix="binlake-jars-") as fetched:
        if wanted and not folder:
            report.say(f"jars     {len(wanted)} by Ivy")
            _resolve(wanted, installed, Path(fetched))
        for jar in wanted:
            report.say(f"jar      {jar.name} {jar.version}")
            _remove_other_versions(jar)
            _put(_in_folder(jar, folder or Path(fetched)), jar)
    if "s3" in stores and not settings.log_store_jar().is_file():
        report.say("jar      the log of Delta tables on S3, compiled")
        _compile_log_store(installed)
    if archive and (wanted or not _archive_is_current(installed)):
        report.say("classes  one short Spark session, whose classes are kept for faster starts")
        _make_archive(report, installed)
    report.say("kernels  the decoders', compiled where they aren't yet")
    kernels = "from binlake import binlog; from binlake.snapshot import resultset; binlog.warm(); resultset.warm()"
    _run([sys.executable, "-c", kernels], "compiling the decoders' kernels")
    report.say(f"ready    {settings.SHARE}")


def _remove_other_versions(jar: Jar) -> None:
    """Remove other versions of a jar, which would also be on the class path."""
    for file in settings.JARS.glob(jar.all_versions):
        file.unlink()


def _in_folder(jar: Jar, folder: Path) -> Path:
    """Return the jar's path in a folder, at any depth. Raises UsageError if it isn't there."""
    path = next(folder.rglob(jar.file), None)
    if path is None:
        raise UsageError(
            f"{jar.file} isn't in {folder}",
            remedy=f"put it there: {jar.organisation}:{jar.name}:{jar.version} as Maven names it",
        )
    return path


def _put(path: Path, jar: Jar) -> None:
    """Install a jar atomically, after checking its hash. Raises SetupFailed."""
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != jar.sha256:
        raise SetupFailed(
            f"{path} has the SHA-256 {digest}, not {jar.sha256}",
            remedy="it isn't the file that was published: take another copy",
        )
    settings.JARS.mkdir(parents=True, exist_ok=True)
    partial = settings.JARS / f".{jar.file}.partial"
    shutil.copyfile(path, partial)
    partial.rename(settings.JARS / jar.file)


def _pyspark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def _resolve(wanted: Sequence[Jar], java: java_program.Java, folder: Path) -> None:
    """Download jars into a folder by one run of Ivy, whose JVM takes a second to start. Raises SetupFailed."""
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.version}" transitive="false"'
        ' conf="default->default"/>'
        for jar in wanted
    )
    asked = folder / "ivy.xml"
    asked.write_text(
        '<ivy-module version="2.0"><info organisation="binlake" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    (ivy,) = _pyspark_jars().glob("ivy-*.jar")
    # Ivy's cache is in the home folder, which Java reads from the password file; HOME shall count.
    of_java, of_ivy = maven.downloads(Path.home()).write(folder)
    command = [java.program, *of_java, f"-Duser.home={Path.home()}", "-cp", str(ivy), "org.apache.ivy.Main", *of_ivy]
    command += ["-ivy", str(asked), "-confs", "default", "-types", "jar"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    what = f"resolving {', '.join(f'{jar.organisation}:{jar.name}:{jar.version}' for jar in wanted)}"
    remedy = f"check the network and ~/.m2/settings.xml, or give a folder that holds the jars: {COMMAND} --jars FOLDER"
    said = _run(command, what, remedy)
    if lacking := [jar.file for jar in wanted if not (folder / jar.file).is_file()]:
        raise SetupFailed(f"{what} gave no {', '.join(lacking)}:\n{said}", remedy=remedy)


def _compile_log_store(java: java_program.Java) -> None:
    """Compile the log store for S3 with the Scala compiler that pyspark ships. Raises SetupFailed."""
    spark = _pyspark_jars()
    compiler = ":".join(str(next(spark.glob(f"scala-{part}-*.jar"))) for part in ("compiler", "library", "reflect"))
    for before in settings.JARS.glob(f"{settings.LOG_STORE_JAR}-*.jar"):
        before.unlink()
    with tempfile.TemporaryDirectory(prefix="binlake-scala-") as folder:
        made = Path(folder) / "made.jar"
        command = [java.program, "-cp", compiler, "scala.tools.nsc.Main", "-usejavacp", "-d", str(made)]
        command += ["-classpath", f"{spark}/*:{settings.JARS}/*", str(settings.LOG_STORE)]
        said = _run(command, "compiling Delta's log on S3")
        if not made.is_file():
            raise SetupFailed(f"compiling Delta's log on S3 gave nothing:\n{said}", remedy="fix what it says above")
        partial = settings.JARS / f".{settings.LOG_STORE_JAR}.partial"
        shutil.copyfile(made, partial)
        partial.rename(settings.log_store_jar())


def _fingerprint(java: java_program.Java) -> str:
    """Return what an archive depends on: the JVM, the jars, pyspark's version."""
    listed = sorted(f"{file.name} {file.stat().st_size}" for file in settings.JARS.glob("*.jar"))
    return "\n".join([java.program, java.said, *listed, f"pyspark {installed_spark()}"]) + "\n"


def _archive_is_current(java: java_program.Java) -> bool:
    return settings.SHARED_ARCHIVE.is_file() and _STAMP.is_file() and _STAMP.read_text() == _fingerprint(java)


def _make_archive(report: Report, java: java_program.Java) -> None:
    """Make the archive of classes. Raises SetupFailed if Spark can't run here."""
    settings.SHARED_ARCHIVE.unlink(missing_ok=True)
    fresh = settings.SHARED_ARCHIVE.with_suffix(".fresh")
    # Read by Spark's launcher for the driver's JVM; JAVA_TOOL_OPTIONS would reach its own too.
    options = {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={fresh} -Xlog:cds=off"}
    _run([sys.executable, "-m", "binlake.spark.warm"], "a short Spark session", environment=options)
    if not fresh.is_file():
        report.say("classes  this JVM keeps none; sessions start slower")
        return
    fresh.rename(settings.SHARED_ARCHIVE)
    _STAMP.write_text(_fingerprint(java))


def _run(
    command: list[str], what: str, remedy: str = "fix what it says above", environment: dict[str, str] | None = None
) -> str:
    """Run a program; return its last lines. Raises SetupFailed with them if it fails."""
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
