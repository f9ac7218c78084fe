"""Operators for the DAGs' steps: preflight, snapshot, unfinished, plan, stage, merge, record, sync, announce."""

from __future__ import annotations

from binlake_airflow.assets import asset_alias as asset_alias, run_key as run_key, table_asset as table_asset
from binlake_airflow.operators.batches import (
    BinlakeMergeOperator as BinlakeMergeOperator,
    BinlakePlanOperator as BinlakePlanOperator,
    BinlakeRecordOperator as BinlakeRecordOperator,
    BinlakeStageOperator as BinlakeStageOperator,
    BinlakeUnfinishedOperator as BinlakeUnfinishedOperator,
)
from binlake_airflow.operators.preflight import BinlakePreflightOperator as BinlakePreflightOperator
from binlake_airflow.operators.snapshots import (
    BinlakeAnnounceOperator as BinlakeAnnounceOperator,
    BinlakeResnapshotOperator as BinlakeResnapshotOperator,
    BinlakeSnapshotOperator as BinlakeSnapshotOperator,
)
from binlake_airflow.operators.sync import BinlakeSyncOperator as BinlakeSyncOperator
