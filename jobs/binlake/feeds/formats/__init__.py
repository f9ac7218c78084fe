"""Formats of feeds: mutations to messages."""
