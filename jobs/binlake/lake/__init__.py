"""Delta tables as Spark writes them: merge, reshape, what is derived."""
