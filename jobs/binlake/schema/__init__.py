"""What a table looks like: columns and key, the registry of types, DDL statements."""
