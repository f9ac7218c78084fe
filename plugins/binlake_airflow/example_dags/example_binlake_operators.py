"""Operators alone: a source is snapshotted, carried along its log, and compared, by three tasks."""

from pathlib import Path

from airflow.sdk import DAG

from binlake_airflow.operators import BinlakeSnapshotOperator, BinlakeSyncOperator, asset_alias
from binlake_airflow.upkeep import BinlakeVerifyOperator

SHOP = str(Path(__file__).with_name("shop.yaml"))

with DAG("example_binlake_operators", schedule=None, max_active_runs=1, tags={"example", "binlake"}):
    snapshot = BinlakeSnapshotOperator(task_id="snapshot", config_file=SHOP, tables=["shop.orders"])
    sync = BinlakeSyncOperator(task_id="sync", config_file=SHOP, outlets=[asset_alias("example_shop")])
    verify = BinlakeVerifyOperator(task_id="verify", config_file=SHOP)
    snapshot >> sync >> verify
