"""binlake's operators, DAGs and page for Airflow. Connections are looked up in Airflow here."""

from __future__ import annotations

import airflow

from binlake.storage import accounts
from binlake_airflow import supported

supported.check(airflow.__version__)


def _look_up(connection: str) -> accounts.ConnectionFields:
    from binlake_airflow.hook import lake_connection

    return lake_connection(connection)


accounts.look_up = _look_up
