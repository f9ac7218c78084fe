"""Sinks of feeds: where messages go."""
