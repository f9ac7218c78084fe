"""The binlog: bytes to Arrow."""
