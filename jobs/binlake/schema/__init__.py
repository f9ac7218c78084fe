"""The shape of tables: columns and key, the registry of types, expressions of generated columns."""
