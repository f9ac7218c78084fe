"""A binlog file made anew: Arrow rows and statements to the bytes of events, as a server writes them. Pure."""
