"""Comparison by reading the rows of both sides."""
