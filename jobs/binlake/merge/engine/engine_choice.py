"""The choice of the engine that changes a table: this process, or Spark where the process leaves a change to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.merge.engine.process_engine import ProcessEngine
from binlake.merge.table_engine import TableEngine, here_or_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Engines:
    """The engines for the changes of one step or table; see EngineChoice. spark: is called with the reason why Spark
    works, says it, and returns a session."""

    config: PipelineConfig
    spark: Callable[[str], SparkSession]

    def change(self, act: Callable[[TableEngine], None]) -> None:
        """Let this process act, or Spark. What the settings and the store leave to Spark isn't begun here."""

        def here() -> None:
            plain_tables.check_is_wanted(self.config.root, self.config)
            act(ProcessEngine(self.config))

        def by_spark(why: str) -> None:
            from binlake.merge.engine.spark_engine import SparkEngine

            act(SparkEngine(self.config, self.session(why)))

        here_or_by_spark(here, by_spark)

    def session(self, why: str) -> SparkSession:
        """Return Spark's session."""
        return self.spark(why)
