"""Configuration: one YAML per source, and files of feeds. Exports the names that other rooms use."""

from binlake.config.catalogs_config import NamedCatalog
from binlake.config.mirrored_tables import SYSTEM_DATABASES, TablesConfig
from binlake.config.orchestration import FollowConfig, VerifyConfig, VerifyWay
from binlake.config.pipeline_config import PipelineConfig, config_of, load
from binlake.config.policies import Policy
from binlake.config.row_filters import RowFilter
from binlake.config.source_config import LakeConfig, SourceConfig
from binlake.config.spark_config import SparkConfig
from binlake.config.step_config import MaintainConfig, MergeConfig, SnapshotConfig

__all__ = [
    "SYSTEM_DATABASES",
    "FollowConfig",
    "LakeConfig",
    "MaintainConfig",
    "MergeConfig",
    "NamedCatalog",
    "PipelineConfig",
    "Policy",
    "RowFilter",
    "SnapshotConfig",
    "SourceConfig",
    "SparkConfig",
    "TablesConfig",
    "VerifyConfig",
    "VerifyWay",
    "config_of",
    "load",
]
