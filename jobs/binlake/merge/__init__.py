"""Merge: one epoch of a table becomes one Delta commit, by this process or by Spark."""
