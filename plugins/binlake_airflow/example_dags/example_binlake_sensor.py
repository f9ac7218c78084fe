"""A sensor: a sync that begins once the source's log has grown by a megabyte, and not before."""

from pathlib import Path

from airflow.sdk import DAG

from binlake_airflow.compat import CronDataIntervalTimetable
from binlake_airflow.operators import BinlakeSyncOperator
from binlake_airflow.sensors import BinlakeSourceChangedSensor

SHOP = str(Path(__file__).with_name("shop.yaml"))
hourly = CronDataIntervalTimetable("0 * * * *", timezone="UTC")

with DAG("example_binlake_sensor", schedule=hourly, max_active_runs=1, tags={"example", "binlake"}):
    changed = BinlakeSourceChangedSensor(task_id="changed", config_file=SHOP, beyond_bytes=1_000_000)
    changed >> BinlakeSyncOperator(task_id="sync", config_file=SHOP)
