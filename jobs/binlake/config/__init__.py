"""Configuration: one YAML per source, and files of feeds. What other rooms use is exported here."""

from binlake.config.pipeline_config import (
    SYSTEM_DATABASES,
    CatalogConfig,
    LakeConfig,
    MaintainConfig,
    MergeConfig,
    PipelineConfig,
    Policy,
    SnapshotConfig,
    SourceConfig,
    SparkConfig,
    TablesConfig,
    config_of,
    load,
)
from binlake.config.verify_config import VerifyConfig, VerifyWay

__all__ = [
    "SYSTEM_DATABASES",
    "CatalogConfig",
    "LakeConfig",
    "MaintainConfig",
    "MergeConfig",
    "PipelineConfig",
    "Policy",
    "SnapshotConfig",
    "SourceConfig",
    "SparkConfig",
    "TablesConfig",
    "VerifyConfig",
    "VerifyWay",
    "config_of",
    "load",
]
