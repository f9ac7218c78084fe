"""Snapshots: chunks of tables copied by Spark JDBC in waves of one position, committed as Delta tables."""
