"""The MySQL or MariaDB server: connection, catalog, locks, its log as replicas get it, and the ranges in that."""
