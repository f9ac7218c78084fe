"""Records: what the metadata tables say of runs, positions, versions, failures and decisions. Needs no JVM."""
