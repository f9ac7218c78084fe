"""Repair of tables that differ from the server, or that can't be read."""
