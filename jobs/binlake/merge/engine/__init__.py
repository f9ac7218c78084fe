"""The engines that change tables: this process, and Spark for what it leaves to Spark; see table_engine.py."""
