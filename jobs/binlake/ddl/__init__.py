"""DDL: reads statements, and changes shapes as they tell. Pure."""
