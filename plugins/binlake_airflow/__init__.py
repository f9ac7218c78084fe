"""binlake's operators, DAGs and page for Airflow. Connections are looked up in Airflow here.

Every process of Airflow imports this for the provider and the plugin, so it imports nothing that an Airflow or another
package of a wrong version could make fail. What needs a version asks ``supported``.
"""

from __future__ import annotations

from binlake.storage import accounts, passwords


def _look_up(connection: str) -> accounts.ConnectionFields:
    from binlake_airflow.hook import lake_connection

    return lake_connection(connection)


def _look_up_key(connection: str) -> str | None:
    from binlake_airflow.hook import password_of

    return password_of(connection)


accounts.look_up = _look_up
passwords.look_up = _look_up_key
