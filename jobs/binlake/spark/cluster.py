"""The things that the executors of a cluster need: shipped where they can be, and looked for where they can't.

engine     this package as it is here, with its compiled kernels: an archive, unpacked in each executor's folder
jars       of share/binlake/jars
trust      the authorities of SSL_CERT_FILE, where the lake is in an object store
packages   numpy, pyarrow …: native code that belongs to a machine; what lacks is reported before anything begins
Spark      and Java: of each host; versions other than the driver's are reported
"""

from __future__ import annotations

import logging
import math
import os
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark import SparkContext

import binlake
from binlake.caches import once
from binlake.errors import SetupFailed
from binlake.kernels import native
from binlake.spark import executors, settings, trust
from binlake.spark.executors import LakeProbe
from binlake.storage import files, java_errors, stores
from binlake.versions import installed_spark

PACKAGES = (
    "numpy", "numba", "pyarrow", "pandas", "pymysql", "deltalake", "delta-spark", "pydantic", "pyyaml", "croniter",
)  # fmt: skip
"""That the engine imports on executors, beside pyspark, which Spark has itself."""

PATIENCE = 600.0
"""Seconds for which a cluster may take to give the first executor."""
_SAID_AFTER = 15.0
_SETTLED, _WISHED = 1.0, 60.0
"""Seconds without another executor, after which those are there that come at once; and where more are wished for."""
_ROUNDS = 5
_NOT_SHARED = (
    "let lake.path be a folder that all hosts share, at one path, and that Spark's account on them may enter; or an "
    "object store's URL"
)
_NOT_REACHED = (
    "let these hosts reach the store, by network and certificates; its account is that of lake.connection, else each "
    "host needs one of its own: by AWS_* or AZURE_* variables of the executors, or a role"
)
_LOG = logging.getLogger("binlake")


def ship(context: SparkContext, lake: str = "") -> None:
    """Give each executor, also those that come later, the engine, the jars and the lake's certificate authorities
    before its first task."""
    # Unpacked by the package's name in the folder that is first on the workers' path: before one installed there.
    context.addArchive(f"{_engine()}#{binlake.__name__}")
    java_context: Any = context._jsc
    for jar in sorted(settings.JARS.glob("*.jar")):
        java_context.addJar(str(jar))
    if store := trust.store_for(lake):
        pem = trust.authorities(lake)
        for file in (str(store), pem):
            context.addFile(file)
        context.environment[trust.VARIABLE] = Path(pem).name


@once
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="binlake-cluster-")


@once
def _engine() -> str:
    """Zip the engine, of a checkout or of a wheel; return the file's path."""
    root = Path(binlake.__file__).parent
    path = Path(_folder().name) / "engine.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(root))
        for place, file in native.kept(root):
            archive.write(file, place)
    return str(path)


def ready(context: SparkContext, lake: str = "") -> int:
    """Return the cores of the executors, once each of them has shown that it can work.

    lake: its root, if they are to read it. Raises SetupFailed, which names the host and what it lacks; LakeError.
    """
    with _probe(lake) as probe:
        return _ready(context, probe)


@contextmanager
def _probe(lake: str) -> Iterator[LakeProbe | None]:
    if not lake:
        yield None
        return
    folder = f"{lake}/_binlake"
    made = LakeProbe(f"{folder}/probe-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex)
    files.make_private_folder(folder)
    files.write_text(made.path, made.content)
    try:
        yield made
    finally:
        files.remove_file(made.path)


def _ready(context: SparkContext, probe: LakeProbe | None) -> int:
    for _ in range(_ROUNDS):
        there = list(_executors(context))
        if there and all(tasks for _, tasks in there):
            break
        if not _is_dynamic(context):
            _wait(context)
        _try(context, sum(cores for cores, _ in _executors(context)) or 1, probe)
    return sum(cores for cores, _ in _executors(context)) or context.defaultParallelism


def _executors(context: SparkContext) -> Iterator[tuple[int, int]]:
    """Return for each executor its cores, and how many tasks it has had."""
    java_context: Any = context._jsc
    listed = java_context.sc().statusStore().executorList(True)
    for number in range(listed.size()):
        executor = listed.apply(number)
        if executor.id() != "driver":
            yield int(executor.totalCores()), int(executor.totalTasks())


def _is_dynamic(context: SparkContext) -> bool:
    """Return whether executors come with the first job."""
    return context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"


def _wait(context: SparkContext) -> None:
    wished = int(context.getConf().get("spark.executor.instances", "0") or 0)
    began = changed = time.monotonic()
    there, warned = 0, False
    settled = _WISHED if wished else _SETTLED
    while not (there and (there >= (wished or math.inf) or time.monotonic() - changed > settled)):
        java_context: Any = context._jsc
        waited = time.monotonic() - began
        if java_context.sc().isStopped() or waited > PATIENCE:
            raise SetupFailed(
                f"{context.master} gave no executor" + (f" in {PATIENCE:.0f} s" if waited > PATIENCE else ""),
                remedy="see in the logs of Spark's workers why executors end; they must reach the driver at"
                f" {context.getConf().get('spark.driver.host')} (spark.driver.host), and have memory for"
                f" {context.getConf().get('spark.executor.memory', '1g')} (spark.executor_memory in the YAML)",
            )
        if not there and waited > _SAID_AFTER and not warned:
            _LOG.warning("waiting for an executor of %s", context.master)
            warned = True
        time.sleep(0.1)
        now = len(list(_executors(context)))
        if now != there:
            there, changed = now, time.monotonic()
    if there < wished:
        _LOG.warning(
            "%s gave %d of %d executors within %.0f s: the work is divided among these",
            context.master,
            there,
            wished,
            _WISHED,
        )


def _try(context: SparkContext, tasks: int, probe: LakeProbe | None) -> None:
    """Run a job on all cores. Raises SetupFailed."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    jvm: Any = context._jvm
    driver = {"Spark": context.version, "Java": jvm.System.getProperty("java.version").partition(".")[0]}
    try:
        asked = context.parallelize(range(tasks), tasks).map(lambda _: executors.lack(versions, probe, driver))
        answers = asked.collect()
    except Exception as error:
        raise _unable(error) from None
    lacks = {lack.host: lack for lack in answers if lack is not None and lack.problems}
    if lacks:
        wanted = " ".join(
            f"'{package}'" for package in dict.fromkeys(package for lack in lacks.values() for package in lack.wanted)
        )
        raise SetupFailed(
            "\n".join(
                f"executors on {lack.host} ({lack.python}): {', '.join(lack.problems)}" for lack in lacks.values()
            ),
            remedy=f"install on these hosts: pip install {wanted} (or 'binlake=={binlake.__version__}', which brings"
            " them), name another Python by spark.pyspark.python, or ship one by spark.archives",
        )
    for host, others in {lack.host: lack.others for lack in answers if lack is not None and lack.others}.items():
        _LOG.warning("executors on %s have %s, as the driver has: give all hosts one", host, " and ".join(others))
    if unread := {lack.host: lack.lake for lack in answers if lack is not None and lack.lake}:
        raise SetupFailed(
            "\n".join(f"executors on {host} can't read the lake: {why}" for host, why in unread.items()),
            remedy=_NOT_SHARED if probe and stores.store_of(probe.path) is None else _NOT_REACHED,
        )


def _unable(error: Exception) -> SetupFailed:
    """Return the error of an executor that couldn't begin."""
    chain = java_errors.causes(error)
    if not chain:
        raise error
    python = os.environ.get("PYSPARK_PYTHON", "")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return SetupFailed(
        f"{java_errors.place(chain) or 'an executor'} can't run {python}: {java_errors.root_cause(chain)}",
        remedy=f"each host needs the driver's Python ({version}) and Spark ({installed_spark()}): install them, name"
        " that Python by spark.pyspark.python in spark.conf of the YAML, or ship one by spark.archives",
    )
