"""Spark's extra jars and the class-data-sharing archive, put into this virtual environment once.

    python docker/local/jars.py            what is missing
    python docker/local/jars.py --no-archive   the jars alone (images: their JVM differs from the builder's)

The jars come by the Ivy that pyspark ships, so that whoever keeps a mirror configures Ivy or Java as usual.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

from binlake.lake import settings
from binlake.versions import JARS, SPARK, Jar

STAMP = settings.SHARED_ARCHIVE.with_suffix(".made-with")


def java() -> str:
    """The program that pyspark will start."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def missing() -> list[Jar]:
    """Jars that aren't there; a file of the right name is only ever put there after its hash was checked."""
    return [jar for jar in JARS if not (settings.JARS / jar.file).is_file()]


def fetch(jar: Jar, into: Path) -> None:
    """Resolve one jar and move it into place; exits with Ivy's last lines when it can't be had."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(prefix="binlake-jar-") as folder:
        # Java asks the password file for the home folder, where Ivy keeps its cache; HOME is what was meant.
        command = [java(), f"-Duser.home={Path.home()}", "-cp", str(ivy), "org.apache.ivy.Main"]
        command += [
            "-dependency",
            jar.organisation,
            jar.name,
            jar.version,
            "-notransitive",
            "-confs",
            "default",
        ]
        command += ["-types", "jar", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        file = Path(folder) / jar.file
        if done.returncode or not file.is_file():
            tail = "\n".join(done.stdout.splitlines()[-15:])
            sys.exit(f"{jar.organisation}:{jar.name}:{jar.version} can't be had:\n{tail}")
        if (found := sha256(file)) != jar.sha256:
            sys.exit(f"{jar.file} has SHA-256 {found}, not {jar.sha256} as in binlake/versions.py")
        into.mkdir(parents=True, exist_ok=True)
        partial = into / f".{jar.file}.partial"
        shutil.copyfile(file, partial)
        partial.rename(into / jar.file)  # whole or not at all


def fingerprint() -> str:
    """What an archive depends on: the JVM, the jars, the options it is used with."""
    jvm = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    return "\n".join([jvm.strip(), *(f"{jar.file} {jar.sha256}" for jar in JARS), f"pyspark {SPARK}"]) + "\n"


def archive_is_current() -> bool:
    return settings.SHARED_ARCHIVE.is_file() and STAMP.is_file() and STAMP.read_text() == fingerprint()


def make_archive() -> None:
    """Run a short session in a process of its own and keep the classes it loaded."""
    settings.SHARED_ARCHIVE.unlink(missing_ok=True)
    fresh = settings.SHARED_ARCHIVE.with_suffix(".fresh")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("warm_session.py"))],
        # Read by Spark's launcher for the driver's JVM; JAVA_TOOL_OPTIONS would reach its own too.
        env={**os.environ, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={fresh} -Xlog:cds=off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit("the short Spark session failed:\n" + "\n".join(done.stdout.splitlines()[-30:]))
    if not fresh.is_file():
        # Sessions start without an archive too, only slower.
        print("this JVM wrote no class-data-sharing archive; sessions will start slower")
        return
    fresh.rename(settings.SHARED_ARCHIVE)
    STAMP.write_text(fingerprint())


def remove_strangers() -> None:
    """Jars of an earlier version would stand on the class path beside the new ones."""
    wanted = {jar.file for jar in JARS}
    for file in settings.JARS.glob("*.jar"):
        if file.name not in wanted:
            file.unlink()


def main() -> None:
    with_archive = "--no-archive" not in sys.argv[1:]
    started = time.monotonic()
    wanted = missing()
    remove_strangers()
    for jar in wanted:
        print(f"jar      {jar.name} {jar.version}", flush=True)
        fetch(jar, settings.JARS)
    if with_archive and (wanted or not archive_is_current()):
        print("jars     one short Spark session, to keep its classes for faster starts", flush=True)
        make_archive()
    print(f"jars     ready in {time.monotonic() - started:.0f} s" if wanted else "jars     ready", flush=True)


if __name__ == "__main__":
    main()
