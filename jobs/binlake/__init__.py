"""The engine of binlake: MySQL and MariaDB tables, mirrored into Delta Lake by snapshot and binlog."""

__version__ = "0.1.0"
