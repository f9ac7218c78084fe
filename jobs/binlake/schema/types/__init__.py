"""The types of MySQL and MariaDB, a module a family: all that belongs to a type, as a DataType for the registry."""
