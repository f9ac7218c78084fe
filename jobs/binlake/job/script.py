"""Common parts of the spark-submit scripts: arguments, the session, the way back of a result or an error.

A script ends with the error's exit code and its message on standard error. Airflow, which started it, finds the
result or the error as JSON in the file that ``BINLAKE_OUTCOME_FILE`` names.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property
from typing import Any

from binlake import config as configuration, interrupts
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.job import submitter
from binlake.report import Report, harmless, harmless_entry
from binlake.source import log
from binlake.source.endpoint import Endpoint
from binlake.source.log import Origin
from binlake.spark.on_demand import SessionOnDemand

OUTCOME_FILE = "BINLAKE_OUTCOME_FILE"


@dataclass(frozen=True)
class Job:
    """One run of a script, with the arguments that the engine's functions take."""

    name: str
    arguments: argparse.Namespace
    config: PipelineConfig
    report: Report
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, in addition to the project's."""

    @cached_property
    def origin(self) -> Origin:
        """Return the source's server or folder of log files. Raises ConfigurationError."""
        return log.origin(self.config.source)

    @property
    def replica(self) -> Endpoint | None:
        """Return the server that ``verify.connection`` names; None without one. Raises ConfigurationError."""
        return log.replica(self.config)

    @cached_property
    def session(self) -> SessionOnDemand:
        """Return the Spark session, which starts where a step first needs it."""
        name = f"binlake {self.config.source.name} {self.name}"
        return SessionOnDemand(name, self.config, self.report, more=lambda: self.settings)


def parser(name: str) -> argparse.ArgumentParser:
    """Return a script's parser, with ``--config``."""
    made = argparse.ArgumentParser(prog=name)
    made.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
    return made


def run(parser: argparse.ArgumentParser, work: Callable[[Job], Any], arguments: Sequence[str] | None = None) -> int:
    """Do the work, hand its result or error back, and return the exit code."""
    parsed = parser.parse_args(arguments)
    submitter.end_with_submitter()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        result = work(Job(parser.prog, parsed, configuration.load(parsed.config), Report()))
    except BinlakeError as error:
        print(harmless_entry(f"binlake: {error}"), file=sys.stderr)
        failure = {"kind": type(error).__name__, "message": str(error), "retryable": error.retryable}
        _hand_back({"error": failure, **_application()})
        return error.exit_code
    except KeyboardInterrupt:
        print(interrupts.SAID, end="", file=sys.stderr)
        return interrupts.EXIT_CODE
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        # Where it happened, and no more than the first line of what: Spark's messages can quote rows.
        first_line = str(error).strip().partition("\n")[0]
        print("".join(traceback.format_tb(error.__traceback__)), file=sys.stderr)
        print(harmless(f"binlake: unexpected {type(error).__name__}: {first_line}"), file=sys.stderr)
        return 3
    _hand_back({"result": _plain(result), **_application()})
    return 0


def _application() -> dict[str, Any]:
    """Return Spark's application, if the work started one that is alive. ui: its own address, None without one."""
    if "pyspark" not in sys.modules:
        return {}
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    with suppress(Exception):  # its JVM may be what died
        if context is not None:
            return {"spark": {"application": context.applicationId, "ui": context.uiWebUrl}}
    return {}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "to_json"):
        return value.to_json()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _hand_back(outcome: dict[str, Any]) -> None:
    if path := os.environ.get(OUTCOME_FILE):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(outcome, file, default=str)
