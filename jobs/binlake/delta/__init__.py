"""Delta Lake without a JVM: read and commit table logs, data files, deletion vectors, statistics and key ranges."""
