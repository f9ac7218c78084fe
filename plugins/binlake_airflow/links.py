"""Links from an Airflow task to binlake's page and to Spark's UI."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.configuration import conf

from binlake.config import load
from binlake.errors import BinlakeError
from binlake_airflow.compat import BaseOperatorLink

if TYPE_CHECKING:
    from binlake_airflow.compat import BaseOperator, TaskInstanceKey

PAGE = "plugin/binlake/binlake/"
"""Path of the page inside Airflow's UI."""
_PATTERN = re.compile(r"[*?\[]")


class PageLink(BaseOperatorLink):
    """Link to the task's batch on binlake's page, or to its only table, else to its source."""

    name = "Binlake"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the link. It is called in the task's process after its end, so that templates are rendered."""
        task: Any = operator
        asked: dict[str, str] = {}
        # Airflow 3.3.2 fails in its own way where a link can't be made: a broken YAML leads to the overview.
        with suppress(BinlakeError):
            asked["source"] = load(task.config_file).source.name
            plan = getattr(task, "plan", None)
            if plan and not plan["empty"]:
                asked["batch"] = str(plan["batch"])
            tables: list[str] = getattr(task, "tables", None) or []
            if len(tables) == 1 and not _PATTERN.search(tables[0]):
                asked["table"] = tables[0]
        return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/{PAGE}?{urlencode(asked)}"


class SparkLink(BaseOperatorLink):
    """Link to the task's application in Spark's history server (``spark.yarn.historyServer.address`` in the YAML's
    ``spark.conf``), else to the application's own UI; empty if the task started no Spark, or there is neither.
    """

    name = "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the link. It is called in the task's process after its end."""
        task: Any = operator
        return task.spark_url or ""
