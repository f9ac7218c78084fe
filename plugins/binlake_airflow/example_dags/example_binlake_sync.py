"""Task groups: all that a bootstrap and a sync consist of, each step a task, in one line each."""

from pathlib import Path

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from binlake_airflow.compat import CronDataIntervalTimetable
from binlake_airflow.groups import binlake_bootstrap, binlake_sync

SHOP = Path(__file__).with_name("shop.yaml")

with DAG("example_binlake_bootstrap", schedule=None, max_active_runs=1, tags={"example", "binlake"}):
    binlake_bootstrap(SHOP)

# With this timetable a run has a data interval, at whose end it stops: a backfill makes up what was missed.
nightly = CronDataIntervalTimetable("0 2 * * *", timezone="UTC")

with DAG("example_binlake_sync", schedule=nightly, max_active_runs=1, tags={"example", "binlake"}):
    binlake_sync(SHOP) >> EmptyOperator(task_id="reports")
