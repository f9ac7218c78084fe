"""Writing of binlog files: Arrow rows and statements become the bytes of events, as a server writes them. Pure."""
