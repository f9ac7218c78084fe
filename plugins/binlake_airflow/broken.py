"""The DAG that takes the place of a YAML with errors, so that these cost no other source."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from binlake.config.yaml_file import NAME
from binlake.errors import ConfigurationError
from binlake_airflow.compat import DAG, AirflowFailException, BaseOperator
from binlake_airflow.timetables import FIRST_INTERVAL, timetable_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from binlake_airflow.compat import Context, CronDataIntervalTimetable

_log = logging.getLogger(__name__)
_HOURLY = "0 * * * *"
_DOC = """
**{file} has errors**, so that nothing of it runs. Each run of this DAG fails with them, until they are fixed; the DAGs
of other files continue.

```
{problem}
```
"""


class BinlakeConfigurationOperator(BaseOperator):
    """Fail, without retries, with what is wrong in a YAML.

    :param problem: the error's message, with its remedy
    """

    def __init__(self, *, problem: str, **kwargs: Any) -> None:
        super().__init__(**{"retries": 0, **kwargs})
        self.problem = problem

    def execute(self, context: Context) -> NoReturn:
        """Raise AirflowFailException with the problem."""
        raise AirflowFailException(self.problem)


def broken_dag(file: Path, what: str, problem: Exception, taken: Collection[str]) -> DAG:
    """Return a DAG whose runs fail with the problem, in the place of the DAG ``binlake_{source}_{what}``.

    Airflow 3.3 takes all DAGs of a Python file as stale while the file has an import error, so that the problem of one
    YAML mustn't become one. The DAG has the source's schedule as far as it can be read, else it runs hourly: whoever
    hears of failed runs hears of this. taken: ids of other DAGs.
    """
    _log.warning("%s has errors, and is shown by itself: %s", file, problem)
    source, schedule = _readable(file)
    dag_id = f"binlake_{source}_{what}"
    if dag_id in taken:
        dag_id = f"binlake_{_as_name(file.stem)}_broken"
    dag = DAG(
        dag_id,
        start_date=FIRST_INTERVAL,
        catchup=False,
        max_active_runs=1,
        schedule=schedule,
        default_args={"owner": "binlake"},
        tags={"binlake", "broken", source},
        doc_md=_DOC.format(file=file.name, problem=problem),
    )
    with dag:
        BinlakeConfigurationOperator(task_id="configuration", problem=str(problem))
    return dag


def _readable(file: Path) -> tuple[str, CronDataIntervalTimetable | None]:
    """Return the source's name and schedule as far as a file with errors has them: by default its own name, hourly."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, yaml.YAMLError, ValueError):  # PyYAML's own for a 13th month
        content = None
    content = content if isinstance(content, dict) else {}
    source = content.get("source")
    name = source.get("name") if isinstance(source, dict) else None
    if not (isinstance(name, str) and re.fullmatch(NAME, name)):
        name = _as_name(file.stem)
    schedule = content.get("schedule", _HOURLY)
    try:
        return name, timetable_of(schedule if isinstance(schedule, str | None) else _HOURLY, "schedule", str(file))
    except ConfigurationError:
        return name, timetable_of(_HOURLY, "schedule", str(file))


def _as_name(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", stem)
