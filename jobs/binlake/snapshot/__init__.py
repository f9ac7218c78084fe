"""Snapshots: chunks of tables copied by Spark or this process in waves of one position, committed as Delta tables."""
