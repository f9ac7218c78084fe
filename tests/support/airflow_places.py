"""Names of Airflow that only tests ask for, wherever its versions keep them. binlake_airflow.compat has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag as DagBag
    from airflow.sdk.definitions.timetables.simple import ContinuousTimetable as ContinuousTimetable
    from airflow.serialization.serialized_objects import DagSerialization as DagSerialization
else:
    try:
        from airflow.dag_processing.dagbag import DagBag
        from airflow.sdk.definitions.timetables.simple import ContinuousTimetable
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization
        from airflow.timetables.simple import ContinuousTimetable

__all__ = ["ContinuousTimetable", "DagBag", "DagSerialization"]
