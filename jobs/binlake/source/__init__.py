"""The MySQL or MariaDB server: connection, catalog, locks, its log as replicas read it, and the ranges of that log."""
