#!/usr/bin/env bash
# Another Python in a private folder, beside the machine's own: nothing of the system changed, no root needed.
#
#   python.sh install 3.13 DIR    Debian trixie's (60 MB unpacked); the interpreter is DIR/root/usr/bin/python3.13
#   python.sh install 3.14 DIR    Debian forky's
set -euo pipefail

fail() { echo "python   $*" >&2; exit 1; }
. "$(dirname "$0")/debian.sh"

PACKAGES='VERSION VERSION-minimal VERSION-venv libVERSION libVERSION-stdlib libVERSION-minimal'
LIBRARIES='libc6 libexpat1 zlib1g libssl3t64 libffi8 libsqlite3-0 libbz2-1.0 liblzma5 libncursesw6 libtinfo6
  libreadline8t64 libuuid1 libcrypt1 libgcc-s1 libstdc++6 libzstd1'

# Its binaries get the release's own loader and libraries, for the machine's may be older.
patch_binaries() { # DIR PYTHON
  local libs loader patchelf
  begin_patches "$1"
  "$patchelf" --set-interpreter "$loader" --set-rpath "$libs" "$1/root/usr/bin/$2"
  for so in "$1/root/usr/lib/$2/lib-dynload/"*.so; do "$patchelf" --set-rpath "$libs" "$so"; done
  rm -rf "$1/patchelf"
}

install() { # VERSION DIR
  local python=python$1 dir partial suite apt
  case $1 in
    3.13) suite=trixie ;;
    3.14) suite=forky ;;
    *) fail "Debian has 3.13 and 3.14, not $1: put python$1 on PATH, or run pyenv install $1, or uv python install $1" ;;
  esac
  partial=$2.partial
  rm -rf "$partial"
  mkdir -p "$partial/debs"
  dir=$(cd "$partial" && pwd)
  private_apt "$dir" "$suite"
  # shellcheck disable=SC2086 # one word for each package
  (cd "$dir/debs" && apt-get "${apt[@]}" download ${PACKAGES//VERSION/$python} $LIBRARIES) > "$dir/log" 2>&1 ||
    { tail -n 5 "$dir/log" >&2; fail "its packages can't be had from $suite"; }
  for deb in "$dir"/debs/*.deb; do dpkg-deb -x "$deb" "$dir/root"; done
  rm -rf "$dir/debs" "$dir/lists" "$dir/cache" "$dir/log" "$dir/sources.list"
  mv "$partial" "$2"
  patch_binaries "$(cd "$2" && pwd)" "$python" # its paths are absolute, so it is moved before
  "$2/root/usr/bin/$python" -c 'import ctypes, lzma, sqlite3, ssl' || { rm -rf "$2"; fail "it doesn't run here"; }
}

case ${1:-} in
  install) install "$2" "$3" ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
