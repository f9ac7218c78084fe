"""Scala's collections and Delta's classes, as Python needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION, _SCHEMA, _PARTITIONS, _PROPERTIES = 2, 4, 5, 6
"""Places of fields of Delta's Metadata."""


def open_transaction(session: SparkSession, path: str) -> Any:
    """Open Delta's OptimisticTransaction on the newest version at the path, or on a table that is to be made."""
    jvm: Any = session.sparkContext._jvm
    nothing = jvm.scala.Option.apply(None)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)
    return log.startTransaction(nothing, nothing)


def changed(
    metadata: Any, session: SparkSession, *, schema: str, properties: Mapping[str, str], description: str = ""
) -> Any:
    """Return Delta's Metadata with another schema (JSON) and description, without partitions."""
    return _with(
        metadata,
        {
            _SCHEMA: schema,
            _DESCRIPTION: description or None,
            _PARTITIONS: to_seq(session, []),
            _PROPERTIES: to_scala_map(session, properties),
        },
    )


def redescribed(metadata: Any, *, schema: str | None = None, description: str | None = None) -> Any:
    """Return Delta's Metadata with another schema (JSON) and description; None keeps what is there."""
    fields = {} if schema is None else {_SCHEMA: schema}
    return _with(metadata, fields if description is None else {**fields, _DESCRIPTION: description or None})


def _with(metadata: Any, fields: Mapping[int, Any]) -> Any:
    values = [getattr(metadata, f"copy$default${index}")() for index in range(1, 9)]
    return metadata.copy(*(fields.get(place, value) for place, value in enumerate(values)))


def overwriting(session: SparkSession) -> Any:
    """Return Delta's operation of a commit that replaces rows, as Delta's history shows it."""
    jvm: Any = session.sparkContext._jvm
    nothing, some = jvm.scala.Option.apply(None), jvm.scala.Some
    return getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")(
        jvm.org.apache.spark.sql.SaveMode.Overwrite,
        some(to_seq(session, [])), nothing, nothing, nothing, some(True), nothing, nothing, nothing,
    )  # fmt: skip


def to_seq(session: SparkSession, values: Iterable[Any]) -> Any:
    """Return a scala.collection.immutable.Seq."""
    jvm: Any = session.sparkContext._jvm
    java_list = jvm.java.util.ArrayList()
    for value in values:
        java_list.add(value)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java_list).toSeq()


def to_scala_map(session: SparkSession, values: Mapping[str, Any]) -> Any:
    """Return a scala.collection.immutable.Map."""
    jvm: Any = session.sparkContext._jvm
    java_map = jvm.java.util.HashMap()
    for key, value in values.items():
        java_map.put(key, value)
    return jvm.PythonUtils.toScalaMap(java_map)


def to_java_list(session: SparkSession, values: Any) -> Sequence[Any]:
    """Return the items of a Scala Seq."""
    jvm: Any = session.sparkContext._jvm
    items: Sequence[Any] = list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(values))
    return items


def to_map(session: SparkSession, values: Any) -> dict[str, str]:
    """Return a Scala map of texts as a dict."""
    jvm: Any = session.sparkContext._jvm
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(values))
