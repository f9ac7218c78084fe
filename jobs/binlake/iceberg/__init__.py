"""Delta tables as Iceberg tables of the same data files. It knows Delta by what ``delta/`` gives of it alone."""
