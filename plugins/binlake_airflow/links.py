"""From a task of Airflow's to binlake's page of what it did."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from binlake.config import load
from binlake.errors import BinlakeError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PAGE = "plugin/binlake/binlake/"
"""Inside Airflow's UI, below its own address."""


class PageLink(BaseOperatorLink):
    """To the batch that the task carries, else to its source."""

    name = "Binlake"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Asked in the task's process once it has ended, so its templates are filled in."""
        task: Any = operator
        asked: dict[str, str] = {}
        # Airflow 3.3.2 fails in its own way where a link can't be made: a broken YAML leads to the overview.
        with suppress(BinlakeError):
            asked["source"] = load(task.config_file).source.name
            plan = getattr(task, "plan", None)
            if plan and not plan["empty"]:
                asked["batch"] = str(plan["batch"])
        return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/{PAGE}?{urlencode(asked)}"
