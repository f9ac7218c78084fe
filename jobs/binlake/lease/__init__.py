"""Lease: the process that works on a source, that follows its log, or that copies its tables. Needs no JVM."""
