"""Comparison by the executors of a Spark cluster."""
