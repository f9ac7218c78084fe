"""The change feed: staged mutations go to sinks, each feed from a watermark of its own. Never asks the server."""
