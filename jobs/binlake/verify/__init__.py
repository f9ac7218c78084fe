"""Verify: comparison of the lake with the server, value by value, at one position."""
