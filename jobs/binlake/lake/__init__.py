"""The lake: snapshot, staging, merge, metadata and their Spark session."""
