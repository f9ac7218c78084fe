"""The lake as its readers see it: versions of all tables, each at the position of one batch."""
