"""DAG factory for a folder of YAML files: for each source one DAG per kind of work, from bootstrap to maintain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from binlake.config import PipelineConfig, load
from binlake.errors import ConfigurationError
from binlake_airflow.assets import asset_alias
from binlake_airflow.broken import broken_dag
from binlake_airflow.compat import DAG, AssetOrTimeSchedule, FormField, Param, ParamsDict
from binlake_airflow.feeding import BinlakeFeedOperator
from binlake_airflow.sources import files_of_feeds, sources_of
from binlake_airflow.steps import Steps, arguments_of_feed, default_args
from binlake_airflow.timetables import FIRST_INTERVAL, timetable_of

_LOCKS = {
    "flush": "flush: FLUSH TABLES WITH READ LOCK for a moment",
    "tables": "tables: LOCK TABLES, where the account may not flush",
    "none": "none: no lock, by GTIDs",
}
_KEYS = r"^(-?[0-9.]*[0-9]\.\.(-?[0-9.]*[0-9])?|\.\.-?[0-9.]*[0-9])$"
_TABLE = {"type": "string", "pattern": r"^.+\..+$"}
_DATE = r"((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2\d))"
_TIME = rf"^\d{{4}}-{_DATE}[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.]\d+)?)?(Z|[+-]([01]\d|2[0-3]):?[0-5]\d)?$"
"""ISO 8601. Airflow 3.3.2 doesn't check JSON schema's format date-time. February 29th is left for the task to check."""

_BOOTSTRAP_DOC = """
Copies tables of **{source}** into Delta Lake, all at one binlog position; the sync DAG follows the log from there.

Without `tables` it copies those that aren't followed yet (a table that was added to `{file}`), and nothing where all
are. `tables` set to `*.*` copies all of them again. Tables that aren't copied stay as they are.
"""
_SYNC_DOC = """
Carries the Delta tables of **{source}** forward along the binlog: preflight → plan → stage → merge → record.
A batch that an earlier run left open is carried through first, by the tasks of the group `unfinished`; the same run
then continues with the rest of the log.

A scheduled run, or a backfilled one, goes to the last commit before its data interval's end; a run triggered by hand
goes to the head of the log. An interval that is merged already ends as a proved no-op. Every table that isn't stopped
is at one position after each run. Settings: `{file}`.
"""

_FOLLOW_DOC = """
Keeps the lake of **{source}** seconds behind its server: one task follows the log in batches, and the next one begins
when it ends. It takes a worker slot all the time. Other DAGs of the source work beside it. The sync DAG checks that it
works, and carries the lake where it doesn't. Settings: `follow` in `{file}`.
"""

_VERIFY_DOC = """
Compares every value of the Delta tables of **{source}** with the server. The server is read consistently at one
position, to which a sync brings the lake. If they differ, the run fails, and the log names the keys of rows; binlake's
page shows when each table was last compared. When this runs, and whether it repairs by itself, is set under `verify`
in `{file}`.
"""

_RESUME_DOC = """
Carries paused or stopped tables of **{source}** through the batches they missed, so that they follow again: fix what
stopped a table first. Who triggered it, and why, is recorded. Settings: `{file}`.
"""

_REPLAY_DOC = """
Builds tables of **{source}** again as they were after a batch, from their snapshot and staged files, or from a folder
of binlog files, without the server. They are written below `_replayed`, beside the existing tables, and compared with
those tables' earlier versions. Settings: `{file}`.
"""

_HOURLY = "0 * * * *"

_FEEDS_DOC = """
Carries the feeds of **{source}** to the newest recorded batch, each by a task of its own, whenever the sync (or a
snapshot) changed tables, and by the sync's `schedule`, or hourly: Airflow keeps no event for a paused DAG. A feed that
fails or takes long doesn't hold up a sync; its staging is kept up to its `keep_gb` and `keep_hours`. Settings: `feeds`
in `{file}`.
"""

_MAINTAIN_DOC = """
Maintains the lake of **{source}**: small and overlapping data files are merged, and files and rows that are past their
time are removed, of the tables and of binlake's own metadata. It may run at the same time as the sync, which waits for
moments at most. How long things are kept, and when this runs, is set under `maintain` in `{file}`.
"""


_WATCH_DOC = """
Checks how far the lake of **{source}** is behind, and how long the server keeps the log that is needed next, also while
the sync is paused or hangs. Limits, and who is notified, are set under `airflow` in `{file}`. It starts no Spark.
"""


def dags_of(folder: Path | str, *, jobs_folder: str | None = None) -> dict[str, DAG]:
    """Return all DAGs of ``folder/*.yaml`` by id, of sources and of files of feeds.

    A file with errors costs its own DAGs alone: one that fails with the error, whatever it is, takes their place.
    """
    dags: dict[str, DAG] = {}
    problems: list[tuple[Path, str, Exception]] = []
    for file, config in sources_of(Path(folder)):
        try:  # whatever is raised: outside, it would take the DAGs of all files
            if isinstance(config, ConfigurationError):
                raise config
            steps = Steps(str(file), config, jobs_folder)
            made = [make(steps) for make in (_bootstrap, _sync, _verify, _resume, _replay, _maintain)]
            made += [_follow(steps)] if config.follow else []
            made += [_watch(steps)] if config.airflow.watched_at else []
        except Exception as error:
            problems.append((file, "sync", error))
            continue
        try:
            made += [_feeds(steps)] if config.feeds else []
        except Exception as error:
            problems.append((file, "feeds", error))
        dags |= {dag.dag_id: dag for dag in made}
    for file in files_of_feeds(Path(folder)):
        try:
            dag = _feeds_of(file)
            if dag.dag_id in dags:
                raise ConfigurationError(f"{file}: there is a source {file.stem}", remedy="give it another name")
            dags[dag.dag_id] = dag
        except Exception as error:
            problems.append((file, "feeds", error))
    for file, what, problem in problems:
        dag = broken_dag(file, what, problem, dags)
        dags[dag.dag_id] = dag
    return dags


def _dag(steps: Steps, what: str, doc: str, **settings: Any) -> DAG:
    """Return the DAG ``binlake_{source}_{what}``, without a schedule unless ``settings`` has one."""
    source = steps.config.source.name
    return DAG(
        f"binlake_{source}_{what}",
        start_date=FIRST_INTERVAL,
        catchup=False,
        max_active_runs=1,
        default_args=default_args(steps.config, steps.file),
        tags={"binlake", source},
        doc_md=doc.format(source=source, file=Path(steps.file).name),
        **{"schedule": None, **settings},
    )


@contextmanager
def _form(dag: DAG, params: Mapping[str, Param]) -> Iterator[DAG]:
    """Open the DAG for its tasks, and set its form afterwards: Airflow would copy the form for each task."""
    with dag:
        yield dag
    dag.params = ParamsDict(dict(params))


def _bootstrap(steps: Steps) -> DAG:
    params = {
        "tables": _tables(steps.config, "those that aren't followed yet; *.*: all of them again"),
        "lock": Param(
            "flush",
            enum=list(_LOCKS),
            values_display=_LOCKS,
            title="Lock",
            description="How the copies get to one position. Writes stop for that moment only, not for the "
            "copy; tables without a key always need a lock.",
        ),
        "keys": Param(
            None,
            type=["null", "string"],
            pattern=_KEYS,
            title="Keys",
            description="Copy only the rows FIRST..LAST of one followed table again, both included, by the first "
            "column of its key, such as 1000..1999 or 1000.. (whole numbers and decimals). The lake is brought to the "
            "position at which they were read.",
        ),
        "begin": Param(
            False,
            type="boolean",
            title="Begin again",
            description="The lake that was here is gone: give it up, and begin a new one here.",
        ),
    }
    with _form(_dag(steps, "bootstrap", _BOOTSTRAP_DOC), params) as dag:
        steps.bootstrap(**{name: FormField(dag, name) for name in params})
    return dag


def _named_tables(description: str) -> Param:
    return Param(type="array", items=_TABLE, minItems=1, title="Tables", description=description)


def _tables(config: PipelineConfig, without: str) -> Param:
    """Return the form's field of table patterns. without: which tables are meant if none is named."""
    tables = config.tables
    excluded = f", without {', '.join(tables.exclude)}" if tables.exclude else ""
    return Param(
        None,
        type=["null", "array"],
        items=_TABLE,
        title="Tables",
        description=f"One pattern of database.table a line, such as shop.orders or shop.order*; empty: {without}. "
        f"Each must match a table that the YAML includes: {', '.join(tables.include)}{excluded}.",
    )


def _sync(steps: Steps) -> DAG:
    until = Param(
        None,
        type=["null", "string"],
        format="date-time",
        pattern=_TIME,
        title="Until",
        description="Stop before commits at or after this time; empty: the head of the log. A scheduled or backfilled "
        "run stops at its data interval's end.",
    )
    schedule = timetable_of(steps.config.schedule, "schedule", steps.file)
    with _form(_dag(steps, "sync", _SYNC_DOC, schedule=schedule), {"until": until}) as dag:
        steps.sync(FormField(dag, "until"))
    return dag


def _follow(steps: Steps) -> DAG:
    with (dag := _dag(steps, "follow", _FOLLOW_DOC, schedule="@continuous")):
        steps.follow()
    return dag


def _verify(steps: Steps) -> DAG:
    verify = steps.config.verify
    asked = verify.schedule if verify.connection or not steps.config.source.is_files else None
    schedule = timetable_of(asked, "verify.schedule", steps.file)
    params = {
        "tables": _tables(steps.config, "all"),
        "changed": Param(
            None,
            type=["null", "boolean"],
            title="Changed",
            description="Compare the rows that may have changed since they were compared, and "
            f"{steps.config.verify.share} of the others; empty: all rows, in scheduled runs as verify.changed says.",
        ),
        "repair": Param(
            False,
            type="boolean",
            title="Repair",
            description="Put the differing rows right, and only these: they get the server's values. verify.repair is "
            f"{steps.config.verify.repair}.",
        ),
    }
    with _form(_dag(steps, "verify", _VERIFY_DOC, schedule=schedule), params) as dag:
        steps.verify(**{name: FormField(dag, name) for name in params})
    return dag


def _resume(steps: Steps) -> DAG:
    params = {
        "tables": _named_tables("database.table, one a line: tables that are paused or stopped."),
        "why": Param(
            type="string",
            minLength=1,
            maxLength=500,
            title="Why",
            description="Recorded with your name.",
        ),
    }
    with _form(_dag(steps, "resume", _RESUME_DOC), params) as dag:
        steps.resume(FormField(dag, "tables"), FormField(dag, "why"))
    return dag


def _replay(steps: Steps) -> DAG:
    params = {
        "tables": _named_tables("One pattern of database.table a line, such as shop.orders or shop.order*."),
        "batch": Param(
            None, type=["null", "integer"], minimum=0, title="Batch", description="Up to this batch; empty: the newest."
        ),
        "as_of": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=_TIME,
            title="As of",
            description="Instead of a batch: the last one recorded by this time.",
        ),
        "archive": Param(
            None,
            type=["null", "string"],
            pattern=r"^file:///",
            title="Archive",
            description="file:///FOLDER of the source's binlog files, for batches that aren't staged any more "
            f"(maintain.staging_hours is {steps.config.maintain.staging_hours:g}).",
        ),
        "prove": Param(
            True, type="boolean", title="Prove", description="Compare every row with the table's own earlier version."
        ),
        "in_place": Param(
            False,
            type="boolean",
            title="In place",
            description="Replace the table's own rows by the newest batch's: for a table that somebody else changed.",
        ),
        "why": Param(
            None,
            type=["null", "string"],
            maxLength=500,
            title="Why",
            description="Needed in place; recorded with your name.",
        ),
    }
    with _form(_dag(steps, "replay", _REPLAY_DOC), params) as dag:
        steps.replay(**{name: FormField(dag, name) for name in params})
    return dag


def _feeds(steps: Steps) -> DAG:
    """Return the DAG of a source's feeds, run when tables changed, and by the sync's schedule.

    Raises ConfigurationError for a ``where`` that can't be parsed.
    """
    from binlake.feeds.feeds_file import understand

    understand(steps.file, steps.config.feeds)
    schedule = _changed_or_time(steps.config.schedule, [asset_alias(steps.config.source.name)], steps.file)
    with (dag := _dag(steps, "feeds", _FEEDS_DOC, schedule=schedule)):
        steps.feeds()
    return dag


def _changed_or_time(schedule: str | None, aliases: list[Any], file: str) -> AssetOrTimeSchedule:
    """Return the schedule of what is to be done when tables changed. It runs by time, too, by default hourly: Airflow
    keeps no event for a DAG that is paused, so after that nothing would be done until the next change.

    schedule: a cron expression. file: the YAML that has it, for the error. Raises ConfigurationError.
    """
    timetable = timetable_of(schedule or _HOURLY, "schedule", file)
    assert timetable is not None  # a cron expression is there
    return AssetOrTimeSchedule(timetable=timetable, assets=reduce(or_, aliases) if len(aliases) > 1 else aliases)


def _feeds_of(file: Path) -> DAG:
    """Return the DAG of a file of feeds, a task per feed and source: run hourly, and when a source changed."""
    from binlake.feeds.feeds_file import understood

    feeds = understood(file)
    paths = {file.parent / source for _, feed in feeds for source in feed.sources}
    files = {load(path).source.name: str(path) for path in sorted(paths)}
    aliases: list[Any] = [asset_alias(name) for name in files]
    dag = DAG(
        f"binlake_{file.stem}_feeds",
        start_date=FIRST_INTERVAL,
        catchup=False,
        max_active_runs=1,
        schedule=_changed_or_time(None, aliases, str(file)),
        tags={"binlake", *files},
        doc_md=f"Carries the feeds of {file.name} to the newest recorded batch of each of their sources.",
    )
    with dag:
        for config, feed in feeds:
            name = config.source.name
            arguments = arguments_of_feed(config, files[name], feed.name)
            BinlakeFeedOperator(task_id=f"{feed.name}.{name}", feeds_file=str(file), **arguments)
    return dag


def _maintain(steps: Steps) -> DAG:
    schedule = timetable_of(steps.config.maintain.schedule, "maintain.schedule", steps.file)
    params = {"tables": _tables(steps.config, "all")}
    with _form(_dag(steps, "maintain", _MAINTAIN_DOC, schedule=schedule), params) as dag:
        steps.maintain(FormField(dag, "tables"))
    return dag


def _watch(steps: Steps) -> DAG:
    schedule = timetable_of(steps.config.airflow.watched_at, "airflow.watch_schedule", steps.file)
    with (dag := _dag(steps, "watch", _WATCH_DOC, schedule=schedule)):
        steps.watch()
    return dag
