"""Metadata: binlake's own Delta tables. Needs no JVM."""
