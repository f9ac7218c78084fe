#!/usr/bin/env bash
# Another Java in a private folder, beside the machine's own: nothing of the system changed, no root needed.
#
#   java.sh install 21 DIR    Debian trixie's (200 MB unpacked); DIR/root/usr/lib/jvm/java-21 is its JAVA_HOME
set -euo pipefail

fail() { echo "java     $*" >&2; exit 1; }
. "$(dirname "$0")/debian.sh"

LIBRARIES='libc6 libgcc-s1 libstdc++6 zlib1g'

# Its libraries find each other by $ORIGIN, which stays.
patch_binaries() { # DIR HOME
  local libs loader patchelf file
  begin_patches "$1"
  for file in "$2/bin/java" "$2/bin/keytool" "$2/lib/jspawnhelper"; do "$patchelf" --set-interpreter "$loader" "$file"; done
  for file in "$2/bin/java" "$2/bin/keytool" "$2/lib/jspawnhelper" "$2"/lib/*.so "$2"/lib/server/*.so; do
    "$patchelf" --set-rpath "\$ORIGIN:\$ORIGIN/..:\$ORIGIN/../lib:$libs" "$file"
  done
  rm -rf "$1/patchelf"
}

# What its links name below /etc is in its own.
own_links() { # DIR
  local link target
  find "$1/root/usr/lib/jvm" -type l -lname '/etc/*' | while read -r link; do
    target=$(readlink "$link")
    [ ! -e "$1/root$target" ] || ln -sfn "$1/root$target" "$link"
  done
}

install() { # VERSION DIR
  local home suite dir partial apt
  case $1 in 21) suite=trixie ;; *) fail "$1 isn't known here: 21 is" ;; esac
  partial=$2.partial
  rm -rf "$partial"
  mkdir -p "$partial/debs"
  dir=$(cd "$partial" && pwd)
  private_apt "$dir" "$suite"
  # shellcheck disable=SC2086 # one word for each package
  (cd "$dir/debs" && apt-get "${apt[@]}" download "openjdk-$1-jre-headless" $LIBRARIES) > "$dir/log" 2>&1 ||
    { tail -n 5 "$dir/log" >&2; fail "its packages can't be had from $suite"; }
  for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
  rm -rf "$dir/debs" "$dir/lists" "$dir/cache" "$dir/log" "$dir/sources.list"
  mv "$partial" "$2"
  dir=$(cd "$2" && pwd) # paths in what is patched and linked are absolute, so it is moved before
  home=$(echo "$dir/root/usr/lib/jvm/java-$1-openjdk-"*)
  ln -sfn "$(basename "$home")" "$dir/root/usr/lib/jvm/java-$1"
  own_links "$dir"
  patch_binaries "$dir" "$home"
  "$home/bin/java" -version 2> /dev/null || { rm -rf "$2"; fail "it doesn't run here"; }
}

case ${1:-} in
  install) install "$2" "$3" ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
