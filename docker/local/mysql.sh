#!/usr/bin/env bash
# MySQL from Debian sid, unpacked into a private folder and run with its own loader and libraries:
# no chroot, nothing of the system changed, no root needed. (Debian's releases carry MariaDB only.)
#
#   mysql.sh install DIR    download and unpack into DIR/root: some 60 MB down, 360 MB unpacked
#   mysql.sh run DIR PROGRAM ARGUMENTS…    mysqld, mysql, mysqlbinlog, mysqldump …
set -euo pipefail

fail() { echo "mysql    $*" >&2; exit 1; }
. "$(dirname "$0")/debian.sh"

install_into() {
  local dir=$1 root=$1/root packages apt
  [ -x "$root/usr/sbin/mysqld" ] && return
  rm -rf "$dir/fresh"
  mkdir -p "$dir/fresh/debs" "$dir/fresh/root"
  dir=$(cd "$dir/fresh" && pwd)
  private_apt "$dir" sid
  packages=$(apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances mysql-server-core mysql-client-core 2> /dev/null |
    grep -E '^[a-z]' | sort -u | grep -v -E '^perl|gconv|legacy')
  # shellcheck disable=SC2086 # one word for each package
  (cd "$dir/debs" && apt-get "${apt[@]}" download $packages) > "$dir/log" 2>&1 ||
    { tail -n 5 "$dir/log" >&2; fail "its packages can't be had"; }
  for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
  mv "$dir/root" "$root" # whole or not at all
  rm -rf "$dir"
}

run() {
  local root program loader libraries
  root=$(cd "$1/root" && pwd)
  program=$2
  shift 2
  loader=$(echo "$root"/usr/lib*/ld-linux-*.so.*)
  libraries=$(echo "$root"/usr/lib/*-linux-gnu)
  local extra=()
  if [ "$program" = mysqld ]; then # after the caller's own: --no-defaults must stand first
    extra=(--basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql"
           --character-sets-dir="$root/usr/share/mysql/charsets" --plugin-dir="$root/usr/lib/mysql/plugin")
  fi
  local binary=$root/usr/sbin/$program
  [ -x "$binary" ] || binary=$root/usr/bin/$program
  exec "$loader" --library-path "$libraries" "$binary" "$@" "${extra[@]}"
}

case ${1:-} in
  install) install_into "$2" ;;
  run) shift; run "$@" ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
