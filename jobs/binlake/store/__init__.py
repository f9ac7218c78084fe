"""Store: the metadata tables, binlake's own Delta tables, and how their rows are read and written. Needs no JVM."""
