"""What the commands of ``binlake`` do."""
