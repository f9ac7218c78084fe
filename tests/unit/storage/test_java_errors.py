"""Java's errors are told by their last cause, without the values of rows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from binlake.storage import java_errors, storage_errors
from binlake.storage.java_errors import JavaCause


@dataclass
class Thrown:
    """A Java exception as py4j shows it."""

    kind: str
    message: str | None
    cause: Thrown | None = None

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self.kind

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> Thrown | None:
        return self.cause


def raised(*chain: tuple[str, str | None]) -> Exception:
    """The outermost comes first."""
    thrown: Thrown | None = None
    for kind, message in reversed(chain):
        thrown = Thrown(kind, message, thrown)
    error = Exception("an error occurred while calling o1.save")
    error.java_exception = thrown  # type: ignore[attr-defined]
    return error


SPARK = "org.apache.spark.SparkException"
ABORTED = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
LOST = "Lost task 0.0 in stage 3.0 (TID 9) (10.0.0.7 executor 3): "


@pytest.mark.parametrize(
    ("kind", "message", "cause"),
    [
        (
            "org.apache.spark.SparkNumberFormatException",
            '[CAST_INVALID_INPUT] The value \'secret\' of the type "STRING" cannot be cast to "INT". '
            "SQLSTATE: 22018\n== SQL ==\nsecret",
            "SparkNumberFormatException [CAST_INVALID_INPUT]",
        ),
        (SPARK, "[CAST_OVERFLOW] The value 1284711L of the type", "SparkException [CAST_OVERFLOW]"),
        (
            SPARK,
            "[INTERNAL_ERROR] Couldn't find v#12 in [id#1, v#3] SQLSTATE: XX000",
            "SparkException: [INTERNAL_ERROR] Couldn't find v#… in [id#…, v#…] SQLSTATE: XX000",
        ),
        (
            "java.lang.NullPointerException",
            'Cannot invoke "Foo.bar()" because "this.x" is null',
            'NullPointerException: Cannot invoke "Foo.bar()" because "this.x" is null',
        ),
        (
            "java.lang.IllegalArgumentException",
            "Text 'it's secret' is no date",
            "IllegalArgumentException: Text … is no date",
        ),
        (
            "java.time.DateTimeException",
            "Invalid value for HourOfDay (valid values 0 - 23): 25",
            "DateTimeException: Invalid value for HourOfDay (valid values … - …): …",
        ),
        ("java.lang.NumberFormatException", "For input string secret", "NumberFormatException"),
        ("scala.MatchError", "secret (of class java.lang.String)", "MatchError"),
        ("java.util.ConcurrentModificationException", None, "ConcurrentModificationException"),
        ("java.lang.OutOfMemoryError", "Java heap space\nat X", "OutOfMemoryError: Java heap space"),
    ],
)
def test_the_last_cause_is_told_without_values(kind: str, message: str | None, cause: str) -> None:
    error = raised((SPARK, ABORTED + LOST + "x: y\n\tat z"), (SPARK, "[FAILED_EXECUTE_UDF] no"), (kind, message))
    assert storage_errors.cause_of(error) == cause
    assert str(storage_errors.failed("merging t failed", error)).startswith(f"merging t failed: {cause}\n")


def test_where_memory_is_spent_the_remedy_names_the_setting() -> None:
    error = raised((SPARK, ABORTED + LOST + "x: y\n\tat z"), ("java.lang.OutOfMemoryError", "Java heap space"))
    assert "spark.driver_memory" in storage_errors.failed("merging t failed", error).remedy


def test_what_the_storage_says_comes_first() -> None:
    error = raised(
        (SPARK, "[TASK_WRITE_FAILED] Task failed"), ("java.io.IOException", "No space left on device"), (SPARK, None)
    )
    assert storage_errors.cause_of(error) == "IOException: No space left on device"


@pytest.mark.parametrize(
    ("reason", "cause", "lost"),
    [
        (
            "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Command exited with "
            "code 137\nDriver stacktrace:",
            "its executor was lost: Command exited with code 137",
            True,
        ),
        ("ExecutorLostFailure (executor 3 exited unrelated)", "its executor was lost: Spark names no reason", True),
        ("java.lang.IllegalStateException: no 'x' here\n\tat y", "IllegalStateException: no … here", False),
        ("TaskKilled (another attempt succeeded)", "SparkException: TaskKilled (another attempt succeeded)", False),
    ],
)
def test_a_task_of_which_spark_only_tells(reason: str, cause: str, lost: bool) -> None:
    error = raised((SPARK, ABORTED + LOST + reason))
    assert (storage_errors.cause_of(error), java_errors.executor_lost(error)) == (cause, lost)
    assert java_errors.place(java_errors.causes(error)) == "executor 3 on 10.0.0.7"


def test_on_the_driver_no_place_is_named() -> None:
    assert java_errors.place([JavaCause(SPARK, ABORTED + LOST.replace("executor 3", "executor driver") + "x")]) == ""


def test_errors_of_python_say_themselves() -> None:
    assert storage_errors.cause_of(ValueError("as it is")) == "as it is"
    assert not java_errors.executor_lost(ValueError("as it is"))
