"""Maintain: upkeep of the lake's data files and of binlake's own tables."""
