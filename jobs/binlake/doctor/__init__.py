"""Doctor: what must hold before a step starts, asked of the server, the lake and Spark."""
