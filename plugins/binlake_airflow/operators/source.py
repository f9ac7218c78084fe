"""Bases of the operators: of a source's steps, and of those that report lineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binlake_airflow import lineage
from binlake_airflow.compat import BaseOperator
from binlake_airflow.links import PageLink
from binlake_airflow.submit import BinlakeSparkOperator
from binlake_airflow.task_log import LogsHarmlessly

if TYPE_CHECKING:
    from binlake_airflow.lineage import TableLineage

UI_COLOR = "#e8f0fb"


class SourceOperator(LogsHarmlessly, BaseOperator):
    """Base of a source's steps that need no Spark.

    :param config_file: the source's YAML (templated)
    """

    template_fields: Sequence[str] = ("config_file",)
    ui_color = UI_COLOR
    operator_extra_links = (PageLink(),)

    def __init__(self, *, config_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_file = config_file


class LineageOperator(BinlakeSparkOperator):
    """Base of operators that report the lineage of each changed table to the provider openlineage."""

    _lineage: tuple[TableLineage, ...] = ()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage. The provider calls this after the task's success."""
        return lineage.facets(self._lineage)


def is_true(value: Any) -> bool:
    """Return whether a form's field, or its rendered template, is true."""
    return str(value).lower() == "true"
