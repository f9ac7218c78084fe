#!/usr/bin/env bash
# The servers' own test suites, from Debian's packages: the statements alone (*.test, *.inc), nothing that runs.
#
#   suites.sh install DIR KIND    mysql: 340 MB down, 110 MB kept in DIR/mysql; mariadb: 20 MB down, 80 MB kept
set -euo pipefail

fail() { echo "suites   $*" >&2; exit 1; }
. "$(dirname "$0")/debian.sh"

# unpack DIR PACKAGE RELEASE FOLDER: FOLDER of the package becomes DIR.
unpack() {
  local dir=$1 package=$2 release=$3 folder=$4 fresh apt
  [ -d "$dir" ] && return
  rm -rf "$dir.fresh"
  mkdir -p "$dir.fresh/suite"
  fresh=$(cd "$dir.fresh" && pwd)
  private_apt "$fresh" "$release"
  (cd "$fresh" && apt-get "${apt[@]}" download "$package") > "$fresh/log" 2>&1 ||
    { tail -n 5 "$fresh/log" >&2; fail "$package can't be had from $release"; }
  dpkg-deb --fsys-tarfile "$fresh"/*.deb | tar -x -C "$fresh/suite" --wildcards "./$folder/*.test" "./$folder/*.inc"
  mv "$fresh/suite/$folder" "$dir" # whole or not at all
  rm -rf "$fresh"
}

case "${1:-} ${3:-}" in
  # each of the release that the server itself comes from
  "install mysql") unpack "$2/mysql" mysql-testsuite sid usr/lib/mysql-test ;;
  "install mariadb") unpack "$2/mariadb" mariadb-test-data bookworm usr/share/mysql/mysql-test ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
