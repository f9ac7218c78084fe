"""Where Spark runs, and its settings."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from binlake.config.section import Section
from binlake.config.yaml_file import MEMORY

_OF_THEIR_OWN = {
    "spark.master": "master",
    "spark.driver.memory": "driver_memory",
    "spark.executor.memory": "executor_memory",
    "spark.jars": "jars",
}
_SECRET = re.compile(r"(?i)(secret|password|token|access[.]?key|secret[.]?key)$")


class SparkConfig(Section):
    """Where and how Spark runs; in Airflow, the Spark connection's master overrides this one.

    master: None for inside the process. jars: paths or URLs of further jars for driver and executors. conf: any setting
    of Spark except those that keep the mirror exact (spark/settings.py lists them).
    """

    master: Annotated[str, Field(min_length=1)] | None = None
    driver_memory: Annotated[str, Field(pattern=MEMORY)] | None = None
    executor_memory: Annotated[str, Field(pattern=MEMORY)] | None = None
    jars: list[str] = []
    conf: dict[str, str | bool | int | float] = {}

    @field_validator("conf")
    @classmethod
    def _is_sparks(cls, conf: dict[str, Any]) -> dict[str, Any]:
        for key in conf:
            if not key.startswith("spark."):
                raise ValueError(f"{key!r} is no setting of Spark's; they begin with spark.")
            if own := _OF_THEIR_OWN.get(key):
                raise ValueError(f"{key!r} has a key of its own; write spark: {{{own}: …}}")
            if _SECRET.search(key):
                raise ValueError(
                    f"{key!r} is a secret, and this file is none; put it into spark-defaults.conf below SPARK_CONF_DIR"
                )
        return conf

    @property
    def settings(self) -> dict[str, str]:
        """``conf`` with values as Spark writes them."""
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in self.conf.items()}

    def history_of(self, application: str) -> str | None:
        """Return the address of an application in Spark's history server; None if ``conf`` names no server."""
        server = self.settings.get("spark.yarn.historyServer.address", "").rstrip("/")
        if not server or "$" in server:
            return None
        return f"{server if '://' in server else f'http://{server}'}/history/{application}/"
