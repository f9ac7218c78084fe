#!/bin/bash
# The images' entry point: runs a command, before which SPARK_AUTH_SECRET is written where Spark's processes read it.
set -euo pipefail
if [ -n "${SPARK_AUTH_SECRET:-}" ]; then
  umask 077
  printf 'spark.authenticate true\nspark.authenticate.secret %s\n' "$SPARK_AUTH_SECRET" > "$SPARK_CONF_DIR/spark-defaults.conf"
  umask 022
  unset SPARK_AUTH_SECRET
fi
exec "$@"
