"""The operator that checks a source before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binlake.config import load
from binlake_airflow import notices
from binlake_airflow.compat import AirflowFailException
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators.source import SourceOperator, is_true
from binlake_airflow.submit import airflow_errors

if TYPE_CHECKING:
    from binlake_airflow.compat import Context


class BinlakePreflightOperator(SourceOperator):
    """Check server, grants, tables, Spark and lake; a failing check fails the run, with the SQL that fixes it.

    :param config_file: the source's YAML (templated)
    :param tables: patterns of ``database.table`` that the run was given (templated): each must match a table
    :param begin: a new lake may take the place of one that is gone (templated)
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "tables", "begin")

    def __init__(self, *, tables: Any = None, begin: Any = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.begin = begin

    def execute(self, context: Context) -> None:
        """Run the checks, and log each. Raises AirflowFailException where one fails."""
        from binlake.doctor.preflight import preflight
        from binlake.records import failures, lost_lease
        from binlake.store.metadata import metadata_of, now_us

        began_us = now_us()
        with airflow_errors():
            config = load(self.config_file)
            origin = BinlakeHook.origin_of(config)
            if is_true(self.begin):
                lost_lease.begin_again(metadata_of(config))
            checks = preflight(config, origin, patterns=self.tables or ())
        for check in checks:
            if check.ok is True:
                self.log.info("ok    %s: %s", check.name, check.found)
            else:
                self.log.warning("%s  %s", check.ok or "FAIL", check.text)
        for problem in notices.problems(config):
            self.log.warning("nobody will be notified by %s", problem)
        failed = [check for check in checks if check.ok is False]
        if failed:
            lines = "\n".join(check.text for check in failed)
            said = f"{len(failed)} of {len(checks)} checks failed\n{lines}"
            failures.note(metadata_of(config), "preflight", said, began_us)
            raise AirflowFailException(said)
