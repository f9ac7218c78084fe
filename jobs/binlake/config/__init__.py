"""Configuration: one YAML per source, and files of feeds. Exports the names that other rooms use."""

from binlake.config.mirrored_tables import SYSTEM_DATABASES, TablesConfig
from binlake.config.orchestration import FollowConfig, VerifyConfig, VerifyWay
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
