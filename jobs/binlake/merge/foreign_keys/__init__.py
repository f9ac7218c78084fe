"""Rows that foreign keys change below the log."""
