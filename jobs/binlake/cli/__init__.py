"""Command line: what ``binlake`` and its subcommands do, and how they print it."""
