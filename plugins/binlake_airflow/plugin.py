"""The Airflow plugin, found by the entry point ``airflow.plugins``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class BinlakePlugin(AirflowPlugin):
    """Makes binlake known to Airflow, so that the operators' version shows under Admin → Plugins."""

    name = "binlake"
