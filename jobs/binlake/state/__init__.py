"""What is known of a source's mirror, on any store and without a JVM: metadata, lease, watermarks, records, files."""
