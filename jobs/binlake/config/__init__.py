"""Configuration: one YAML per source, and files of feeds. What other rooms use is exported here."""

from binlake.config.follow_config import FollowConfig
from binlake.config.mirrored_tables import SYSTEM_DATABASES, TablesConfig
from binlake.config.pipeline_config import (
    CatalogConfig,
    LakeConfig,
    MaintainConfig,
    MergeConfig,
    PipelineConfig,
    SnapshotConfig,
    SourceConfig,
    SparkConfig,
    config_of,
    load,
)
from binlake.config.policies import Policy
from binlake.config.verify_config import VerifyConfig, VerifyWay

__all__ = [
    "SYSTEM_DATABASES",
    "CatalogConfig",
    "FollowConfig",
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
