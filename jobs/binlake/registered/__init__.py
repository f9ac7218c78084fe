"""Names of the lake's tables in catalogs of others, which need no JVM to be reached."""
