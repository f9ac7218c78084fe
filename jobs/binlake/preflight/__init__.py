"""What must be so before anything is done: asked of the server, the lake, Spark, and of what was requested."""
