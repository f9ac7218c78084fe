#!/bin/bash
# Inside a server's container: the demo's shop, or with "change" an hour of changes in it.
set -euo pipefail
client=$(command -v mariadb || command -v mysql)
export MYSQL_PWD=${MYSQL_ROOT_PASSWORD:-${MARIADB_ROOT_PASSWORD:-}}
case ${1:-fill} in
  fill) cat /binlake/sql/demo_schema.sql /binlake/sql/demo_rows.sql ;;
  change) cat /binlake/sql/demo_changes.sql ;;
esac | "$client" -uroot --default-character-set=utf8mb4
