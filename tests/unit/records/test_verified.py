"""Up to which batch tables are known equal: of those that are verified, and of no others."""

from __future__ import annotations

from pathlib import Path

from binlake.config import PipelineConfig
from binlake.records import verified
from binlake.store.metadata import metadata_of


def test_what_is_never_verified_holds_nothing_back(tmp_path: Path) -> None:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "s", "server_id": 4001},
            "tables": {
                "include": ["shop.orders", "shop.lines", "shop.clicks", "shop.old"],
                "exclude": ["shop.old"],
                "modes": [{"tables": "shop.clicks", "log": {}, "mirror": False}],
            },
            "lake": {"path": str(tmp_path)},
        }
    )
    metadata = metadata_of(config)
    for table in ("orders", "lines", "clicks", "old", "_orders_gho"):
        row = {"table_id": table, "database": "shop", "table": table, "status": "following", "batch": 9}
        metadata.append("watermarks", [row])
    for life, batch in (("orders", 7), ("orders", 3), ("lines", 5)):
        metadata.append("verified", [{"table_id": life, "batch": batch, "position": "p", "at_us": 1}])
    assert verified.batches(config, metadata) == {"shop.orders": 3, "shop.lines": 5}
    assert verified.least(verified.batches(config, metadata).values()) == 3
