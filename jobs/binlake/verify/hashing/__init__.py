"""Comparison by checksums that both sides compute, and the rows of the chunks that differ."""
