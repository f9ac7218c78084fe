"""Support of the spark-submit scripts: arguments, session, result, and the tie to the process that submitted them."""
