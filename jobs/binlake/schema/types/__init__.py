"""The types of MySQL and MariaDB, a module a family: all that belongs to a type, as a DataType for the registry.

A new type needs its entry in a module here, its code in ``log_form.Wire``, a line in ``datatypes.REGISTRY``, and
samples for the tests (odd_values.py); ``binlog.tablemap`` where table maps have a field of optional metadata for it.
"""
