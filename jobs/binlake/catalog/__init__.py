"""The lake as an Iceberg catalog over HTTP, in which each batch is a warehouse of its own."""
