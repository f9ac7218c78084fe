"""DDL: parses statements, and changes shapes as they say. Pure."""
