"""Spark: session, settings, cluster, and Delta's classes over py4j."""
