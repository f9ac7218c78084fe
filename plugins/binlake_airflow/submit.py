"""binlake jobs on Spark: spark-submit with binlake's settings; secrets and results are exchanged in files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig, hash_connections, load
from binlake.config.column_policies import key_connections
from binlake.errors import BinlakeError, ConfigurationError, LeaseHeld, NoSnapshotYet
from binlake.job import submitter
from binlake.report import harmless
from binlake.spark.settings import SHARE, check, is_local, launch_settings, refuse_missing_jars
from binlake.storage import accounts, passwords
from binlake_airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRescheduleException,
    AirflowSkipException,
    BaseHook,
    SparkSubmitHook,
    SparkSubmitOperator,
)
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.links import PageLink, SparkLink
from binlake_airflow.task_log import LogsHarmlessly, at_their_level

if TYPE_CHECKING:
    from binlake.source.log import Origin
    from binlake_airflow.compat import Context

DEFAULT_SPARK = "spark_default"
WAIT = timedelta(seconds=15)
"""How long a task waits, without a worker slot, before it checks again whether another run has ended."""


def look_again(wait: timedelta = WAIT) -> AirflowRescheduleException:
    """Return the exception that reschedules the task without using up a retry."""
    return AirflowRescheduleException(datetime.now(UTC) + wait)  # type: ignore[no-untyped-call]


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Raise binlake's errors as Airflow's: wait for a held lease, and retry only errors that a retry can help.

    Before the first snapshot the task is skipped: there is nothing that it could carry forward.
    """
    try:
        yield
    except NoSnapshotYet as error:
        raise AirflowSkipException(str(error)) from None
    except LeaseHeld:
        raise look_again() from None
    except BinlakeError as error:
        raise _airflow_error(str(error), retryable=error.retryable) from None


def _airflow_error(message: str, *, retryable: bool) -> AirflowException:
    message = harmless(message)
    return AirflowException(message) if retryable else AirflowFailException(message)


def script(name: str, folder: str | None = None) -> str:
    """Return the path of ``{name}.py`` in ``folder``, beside the engine (a checkout), or where the wheel puts it.

    Raises ConfigurationError if it isn't there.
    """
    import binlake

    engine = Path(binlake.__file__).parent
    places = [Path(folder)] if folder else [engine.parent, SHARE / "jobs"]
    for place in places:
        if (place / f"{name}.py").is_file():
            return str(place / f"{name}.py")
    raise ConfigurationError(
        f"no {name}.py in {' or '.join(map(str, places))}",
        remedy="install binlake's wheel or a checkout on this worker, or set jobs_folder of the operator",
    )


class Handover:
    """A folder that only this account may read, with the connection for the job and its outcome.

    The job ends when the process that made the folder is gone.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="binlake-"))
        self._connection = self._folder / "connection.json"
        self._replica = self._folder / "replica.json"
        self._lake = self._folder / "lake.json"
        self._keys = self._folder / "keys.json"
        self._outcome = self._folder / "outcome.json"
        self._submitter = self._folder / "submitter"
        self._held = submitter.hold(str(self._submitter))

    def put(self, origin: Origin) -> None:
        """Write a server's connection for the job; files need none."""
        from binlake.source.connection import write_file
        from binlake.source.endpoint import Endpoint

        if isinstance(origin, Endpoint):
            write_file(origin, str(self._connection))

    def put_replica(self, config: PipelineConfig) -> None:
        """Write the connection of the replica that a verification reads, if it has one."""
        from binlake.source.connection import write_file

        if replica := BinlakeHook.replica_of(config):
            write_file(replica, str(self._replica))

    def put_lake(self, config: PipelineConfig) -> None:
        """Write the account of the lake's connection for the job, if it has one."""
        if config.lake.connection:
            accounts.hand_over(str(self._lake), config.lake.connection)

    def put_keys(self, config: PipelineConfig) -> None:
        """Write the keys of hashes for the job, if the YAML names any."""
        if connections := key_connections(config.columns):
            hash_connections.hand_over(str(self._keys), connections)

    @property
    def environment(self) -> dict[str, str]:
        """Return the job's environment variables: paths of the files in this folder."""
        from binlake.source.connection import REPLICA_FILE

        lake = {accounts.CONNECTION_FILE: str(self._lake)} if self._lake.exists() else {}
        replica = {REPLICA_FILE: str(self._replica)} if self._replica.exists() else {}
        held = {submitter.LOCK_FILE: str(self._submitter)} if self._held else {}
        return {
            "BINLAKE_CONNECTION_FILE": str(self._connection),
            "BINLAKE_OUTCOME_FILE": str(self._outcome),
            **held,
            **lake,
            **replica,
            **({passwords.KEYS_FILE: str(self._keys)} if self._keys.exists() else {}),
        }

    def outcome(self) -> dict[str, Any]:
        """Return ``{"result": …}`` or ``{"error": …}``; empty if the job died before it wrote one, or while it did."""
        try:
            content: dict[str, Any] = json.loads(self._outcome.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return content

    def remove(self) -> None:
        """Remove the folder; a job that still runs ends itself."""
        if self._held:
            self._held.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class BinlakeSparkOperator(LogsHarmlessly, SparkSubmitOperator):
    """Run one of the scripts in ``jobs/`` by spark-submit, in client mode.

    :param config_file: the source's YAML, on every worker at the same path (templated)
    :param job: the script's name, such as ``stage``
    :param jobs_folder: folder of the scripts; by default beside the engine, or where the wheel puts them

    ``conn_id`` is the Spark connection; if ``spark_default`` isn't defined, the YAML's ``spark.master`` is used, else
    Spark runs in the task (local[*]). ``conf`` overrides the YAML's. Other parameters are SparkSubmitOperator's.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "config_file")
    ui_color = "#e8f0fb"
    operator_extra_links = (PageLink(), SparkLink())

    def __init__(self, *, config_file: str, job: str, jobs_folder: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"name": f"binlake {job}", **kwargs})
        self.config_file = config_file
        self.job = job
        self.jobs_folder = jobs_folder
        self._short_lived = False
        self._handover: Handover | None = None
        self.spark_url: str | None = None
        """Address of the Spark application's UI or history, once it has run."""

    def pipeline_config(self) -> PipelineConfig:
        """Return the source's configuration. Raises ConfigurationError."""
        return load(self.config_file)

    def submit(self, context: Context, *arguments: str, short_lived: bool = False) -> Any:
        """Run the job; return its result. Raises the job's error as Airflow's, and UsageError if Spark lacks jars.

        short_lived: the JVM is too short-lived for optimising its code.
        """
        from binlake.records import failures
        from binlake.store.metadata import metadata_of, now_us

        self._short_lived = short_lived
        config, began_us = self.pipeline_config(), now_us()
        refuse_missing_jars(config.root)
        self.application = script(self.job, self.jobs_folder)
        self.application_args = ["--config", self.config_file, *arguments]
        self._handover = Handover()
        try:
            self._handover.put(BinlakeHook.origin_of(config))
            self._handover.put_lake(config)
            self._handover.put_keys(config)
            if self.job == "verify":
                self._handover.put_replica(config)
            try:
                super().execute(context)
            except AirflowException:
                if error := self._handover.outcome().get("error"):
                    if error["kind"] == LeaseHeld.__name__:
                        self.log.info("%s", error["message"])
                        raise look_again() from None
                    if error["kind"] == NoSnapshotYet.__name__:
                        raise AirflowSkipException(error["message"]) from None
                    raise _airflow_error(error["message"], retryable=error["retryable"]) from None
                failures.note_death(metadata_of(config), self.job, began_us)
                raise  # it wrote no outcome: killed, out of memory, or Spark itself didn't start
            return self._handover.outcome().get("result")
        finally:
            if spark := self._handover.outcome().get("spark"):
                self.spark_url = config.spark.history_of(spark["application"]) or spark["ui"]
                self.log.info("Spark's application was %s", spark["application"])
            self._handover.remove()

    def on_kill(self) -> None:
        """End the driver and remove the secrets when the task was cleared, timed out or marked."""
        if self._hook is not None:
            super().on_kill()
        if self._handover is not None:
            self._handover.remove()

    def _get_hook(self) -> SparkSubmitHook:
        config = self.pipeline_config()
        spark = config.spark
        own = {key: str(value) for key, value in (self.conf or {}).items()}
        check(own)
        # Workers run the Python given to spark-submit; the session's own settings come too late.
        self.conf = {
            "spark.pyspark.python": sys.executable,
            **launch_settings(spark, short_lived=self._short_lived, lake=config.root),
            **own,
        }
        if self._spark_binary is None:
            # Airflow is often started without its virtual environment's bin folder on PATH.
            beside_python = Path(sys.executable).with_name("spark-submit")
            self._spark_binary = str(beside_python) if beside_python.exists() else None
        default = None
        if self._conn_id == DEFAULT_SPARK and not _is_defined(DEFAULT_SPARK):
            default = spark.master or "local[*]"
            self.log.info("%s isn't defined: Spark's master is %s", DEFAULT_SPARK, default)
        with _defined(DEFAULT_SPARK, default):
            hook = super()._get_hook()
        process_log = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda itr: process_log(at_their_level(itr, self.log))  # type: ignore[method-assign]
        if hook._connection["deploy_mode"] == "cluster":
            raise ConfigurationError(
                f"the Spark connection {self._conn_id!r} asks for deploy mode cluster",
                remedy="set its deploy mode to client: the password must not leave the worker but to executors",
            )
        # With env_vars, the hook would put all of this into arguments for Kubernetes and YARN.
        hook._env_vars = None
        master = hook._connection["master"]
        hook._env = {
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_MASTER": master,
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(master) else {}),
            **(self._handover.environment if self._handover else {}),
            **(self.env_vars or {}),
        }
        return hook


@contextmanager
def _defined(connection_id: str, master: str | None) -> Iterator[None]:
    """Define the Spark connection meanwhile, if a master is given; without a connection the stock hook takes YARN."""
    variable = f"AIRFLOW_CONN_{connection_id.upper()}"
    if master is not None:
        os.environ[variable] = json.dumps({"conn_type": "spark", "host": master})
    try:
        yield
    finally:
        if master is not None:
            del os.environ[variable]


def _is_defined(connection_id: str) -> bool:
    try:
        BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        return False
    return True
