#!/bin/bash
# Run once by the server image at its first start: the mirroring account, with the grants of sql/.
set -euo pipefail
client=$(command -v mariadb || command -v mysql)
export MYSQL_PWD=${MYSQL_ROOT_PASSWORD:-${MARIADB_ROOT_PASSWORD:-}}
# The password goes by standard input, not by an argument that the process list shows; quotes doubled.
quoted=${BINLAKE_PASSWORD//\\/\\\\}
quoted=${quoted//\'/\'\'}
{ echo "CREATE USER 'binlake'@'%' IDENTIFIED BY '$quoted';"
  cat /binlake/grants.sql
} | "$client" -uroot
