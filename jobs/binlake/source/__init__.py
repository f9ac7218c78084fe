"""The MySQL or MariaDB server: connection, catalog, preflight, locks."""
