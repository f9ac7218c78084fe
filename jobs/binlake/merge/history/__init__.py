"""Histories: a row for each version of a row, beside a mirror."""
