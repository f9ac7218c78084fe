#!/usr/bin/env bash
# What a machine needs, without Docker: each step says what it does, or that it was done before.
#
#   setup.sh [STEP…]    python java mariadb mysql tools engine; all of them by default
#   setup.sh tests      these, MariaDB 11.8 and the releases that SERVERS names, the servers' own test suites, servers of
#                       S3, Azure Blobs and SSH, a broker, ClickHouse's engine, a catalog, and a browser
#   setup.sh bench      the default ones, and the generator of TPC-H's rows
#   setup.sh demo       python java engine, and one server: MySQL, or MariaDB where MySQL can't be had
#   setup.sh moto         a stand-in of AWS Glue, for the tests
#   setup.sh iceberg_rest an Iceberg REST catalog, for the tests
#   setup.sh iceberg      Spark 4.1 with Iceberg, which reads what is published
#   setup.sh python-3.13  the interpreter of another Python, for an environment beside .venv; java-21: another Java
#
# Debian and Ubuntu are helped by apt (through sudo for other users than root); elsewhere a message
# names what to install. Everything else lands in .venv and .binlake. A second run needs no network.
set -euo pipefail
cd "$(dirname "$0")/../.."

UV=0.13.8
VENV=.venv
STATE=.binlake

say() { printf '%-9s%s\n' "$1" "$2"; }
fail() { printf '%-9s%s\n' "$1" "$2" >&2; exit 1; }
there() { command -v "$1" > /dev/null 2>&1; }
. docker/local/steps.sh

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif there sudo; then sudo "$@"
  else return 1
  fi
}

apt_update() { # once in a run; its output goes to stdout
  [ -e "$RUN/apt-updated" ] || { as_root apt-get -q update 2>&1 && touch "$RUN/apt-updated"; }
}

# apt_install PACKAGES…: quiet unless it fails.
apt_install() {
  local log status=0
  log=$(mktemp)
  { apt_update && as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"; } \
    > "$log" 2>&1 || { status=$?; tail -n 5 "$log" >&2; }
  rm -f "$log"
  return $status
}

# by_apt STEP WHAT PACKAGES…: install, or say what to do by hand.
by_apt() {
  local step=$1 what=$2
  shift 2
  there apt-get || fail "$step" "$what is missing, and this isn't Debian or Ubuntu: install it, or use docker/compose.yaml"
  say "$step" "installing $* with apt"
  locked apt apt_install "$@" || fail "$step" "apt couldn't install $*: install $what yourself, or use docker/compose.yaml"
}

# -- python ----------------------------------------------------------------------------------------

find_uv() {
  if uv --version > /dev/null 2>&1; then echo uv
  elif [ -x "$VENV/bin/uv" ]; then echo "$VENV/bin/uv"
  fi
}

make_venv() {
  local uv
  uv=$(find_uv)
  if python3.11 -c '' 2> /dev/null; then
    if [ -n "$uv" ]; then "$uv" venv -q --python "$(python3.11 -c 'import sys; print(sys.executable)')" $VENV && return; fi
    python3.11 -c 'import ensurepip' 2> /dev/null || by_apt python "the venv module of Python 3.11" python3.11-venv
    python3.11 -m venv $VENV
  elif [ -n "$uv" ]; then
    say python "no Python 3.11 on PATH: uv fetches one"
    "$uv" venv -q --python 3.11 $VENV || fail python "Python 3.11 can't be had: install it, then run make setup again"
  else
    by_apt python "Python 3.11" python3.11 python3.11-venv
    python3.11 -m venv $VENV
  fi
}

setup_python() {
  local stamp=$VENV/.installed wanted uv
  if [ ! -x $VENV/bin/python ]; then
    say python "making $VENV"
    make_venv
  fi
  $VENV/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail python "$VENV isn't Python 3.11: remove it (make clean), then run make setup again"
  wanted=$(cat docker/requirements.lock pyproject.toml | sha256sum)
  if [ "$(cat $stamp 2> /dev/null)" = "$wanted" ]; then
    say python "$($VENV/bin/python -V), $VENV as locked"
    compile_own_code
    return
  fi
  uv=$(find_uv)
  if [ -z "$uv" ]; then
    say python "installing uv $UV into $VENV"
    $VENV/bin/python -m pip install -q --no-deps --require-hashes -r docker/uv.lock || fail python "pip couldn't install uv"
    uv=$VENV/bin/uv
  fi
  say python "installing $(grep -c '^[a-z0-9].*==' docker/requirements.lock) locked packages into $VENV, hashes checked"
  "$uv" pip install -q --python $VENV/bin/python --compile-bytecode --require-hashes --no-deps -r docker/requirements.lock
  say python "installing binlake itself, editable"
  "$uv" pip install -q --python $VENV/bin/python --no-deps -e .
  compile_own_code
  echo "$wanted" > $stamp
}

# With PYTHONDONTWRITEBYTECODE in the environment, every process would compile what it imports for itself.
compile_own_code() { $VENV/bin/python -m compileall -q jobs plugins docker/local tests/support; }

setup_release() { # python-3.13, java-21, mariadb-11.4 …
  case $1 in
    python-*) setup_another Python "${1#python-}" "usr/bin/python${1#python-}" ;;
    java-*) setup_another Java "${1#java-}" "usr/lib/jvm/java-${1#java-}" ;;
    mariadb-*) setup_mariadb_release "${1#mariadb-}" ;;
  esac
}

setup_another() { # Python or Java of another release, beside the machine's own: its name, release and place
  local kind=${1,,}
  local folder=$STATE/$kind-$2
  if [ ! -d "$folder/root" ]; then
    say "$kind" "unpacking $1 $2 into $folder"
    bash "docker/local/$kind.sh" install "$2" "$folder" || fail "$kind" "$1 $2 can't be had: see above"
  fi
  say "$kind" "$1 $2 is $folder/root/$3"
}

# -- java ------------------------------------------------------------------------------------------

java_version() { # of the java that Spark will start; nothing when there is none
  local java=java
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

setup_java() {
  local version
  version=$(java_version || true)
  case $version in 17 | 21) say java "Java $version"; return ;; esac
  [ -z "${JAVA_HOME:-}" ] || fail java "JAVA_HOME is $JAVA_HOME, which isn't Java 17 or 21: unset or change it"
  local package=openjdk-17-jre-headless
  if there apt-cache && [ -z "$(apt-cache policy $package 2> /dev/null | grep 'Candidate: [0-9]')" ]; then
    locked apt apt_update > /dev/null || true
    apt-cache policy $package | grep -q 'Candidate: [0-9]' || package=openjdk-21-jre-headless
  fi
  by_apt java "Java 17" $package
  version=$(java_version || true)
  case $version in 17 | 21) return ;; esac
  fail java "java on PATH is still version ${version:-none}: put Java 17 or 21 first, or set JAVA_HOME"
}

by_ivy() { # OPTIONS…: the Ivy that pyspark ships; its runs keep what they work on under one name
  locked ivy "${JAVA_HOME:+$JAVA_HOME/bin/}java" "-Duser.home=$HOME" \
    -cp "$(echo $VENV/lib/python3.11/site-packages/pyspark/jars/ivy-*.jar)" org.apache.ivy.Main "$@"
}

# -- servers ---------------------------------------------------------------------------------------

setup_mariadb() {
  PATH=$PATH:/usr/sbin
  if there mariadbd && there mariadb-install-db; then
    say mariadb "$(mariadbd --no-defaults --version 2> /dev/null | sed -n 's/.*Ver \([^ ]*\).*/MariaDB \1/p')"
    return
  fi
  by_apt mariadb "MariaDB (mariadbd and mariadb-install-db)" mariadb-server-core mariadb-client-core
}

setup_mariadb_release() { # 11.4 or 11.8, beside the machine's own
  local folder=$STATE/mariadb-$1 lock=mariadb-$1
  if [ -d "$folder/root" ]; then
    say mariadb "MariaDB $1 in $folder"
    return
  fi
  say mariadb "unpacking MariaDB $1 into $folder"
  [ "$1" != 11.4 ] || { in_order python java; lock=ivy; } # which brings it
  locked $lock bash docker/local/mariadb.sh install "$1" "$folder" || fail mariadb "MariaDB $1 can't be had: see above"
}

setup_mariadb_releases() { # what the tests use, and those that SERVERS names
  local release
  for release in 11.4 11.8; do
    case " 11.8 ${SERVERS:-} " in *"$release"*) setup_mariadb_release $release ;; esac
  done
}

setup_tools() { # the tests run it against MariaDB
  if there pt-online-schema-change; then
    say tools "$(pt-online-schema-change --version)"
    return
  fi
  by_apt tools "pt-online-schema-change" percona-toolkit
}

mysql_on_path() { # a MySQL of this machine's own; Debian's MariaDB calls itself mysqld too
  PATH=$PATH:/usr/sbin mysqld --no-defaults --version 2> /dev/null | grep -v -i mariadb | sed -n 's/.*Ver \([^ ]*\).*/\1/p'
}

try_mysql() {
  local own
  if [ -x $STATE/mysql/root/usr/sbin/mysqld ]; then
    say mysql "MySQL in $STATE/mysql"
    return
  fi
  own=$(mysql_on_path || true)
  if [ -n "$own" ]; then
    say mysql "MySQL $own of this machine"
    return
  fi
  say mysql "unpacking Debian sid's MySQL into $STATE/mysql (60 MB)"
  if there apt-get && [ ! -r /usr/share/keyrings/debian-archive-keyring.gpg ]; then
    locked apt apt_install debian-archive-keyring || true
  fi
  locked mysql bash docker/local/mysql.sh install $STATE/mysql
}

setup_mysql() {
  try_mysql || fail mysql "MySQL can't be had: put a mysqld of 8.4 or newer on PATH, or use docker/compose.yaml"
}

setup_one_server() {
  if try_mysql; then return; fi
  say mysql "can't be had here: the demo takes MariaDB"
  setup_mariadb
}

# -- suites ----------------------------------------------------------------------------------------

setup_suites() { # one is enough: each server takes most of either
  local kind folder=$STATE/strangers
  declare -A size=([mariadb]=20 [mysql]=340)
  for kind in mariadb mysql; do
    if [ -d "$folder/$kind" ]; then
      say suites "$kind's own test suite in $folder/$kind"
      continue
    fi
    say suites "unpacking $kind's own test suite into $folder/$kind (${size[$kind]} MB)"
    mkdir -p "$folder"
    bash docker/local/suites.sh install "$folder" "$kind" || say suites "$kind's test suite can't be had"
  done
  [ -d "$folder/mariadb" ] || [ -d "$folder/mysql" ] ||
    fail suites "no server's test suite can be had: unpack one (its folder mysql-test) as $folder/mariadb or $folder/mysql"
}

# -- store -----------------------------------------------------------------------------------------

VERSITYGW=v1.8.0

AZURITE=3.37.0

setup_azurite() { # the tests' Azure Blob server; Node is asked for only here
  if [ -d $STATE/azurite ]; then
    say azurite "an Azure Blob server in $STATE/azurite"
    return
  fi
  there npm || fail azurite "the tests' Azure Blob server runs by Node.js 20 or newer: install it with npm (users need none)"
  say azurite "bringing the Azure Blob server Azurite $AZURITE into $STATE (365 MB)"
  rm -rf $STATE/azurite.partial
  npm install --silent --no-audit --no-fund --prefix $STATE/azurite.partial "azurite@$AZURITE" ||
    fail azurite "the Azure Blob server can't be had: see above"
  mv $STATE/azurite.partial $STATE/azurite
}

setup_store() { # the tests' S3 server; Go is asked for only here
  if [ -x $STATE/versitygw ]; then
    say store "an S3 server in $STATE/versitygw"
    return
  fi
  there go || fail store "the tests' S3 server is built with Go 1.25 or newer: install it (users need none)"
  say store "building the S3 server versitygw $VERSITYGW into $STATE (80 MB)"
  local log
  log=$(mktemp)
  # Niced: it takes all cores, and what Spark needs takes longer.
  GOBIN=$PWD/$STATE GOFLAGS=-buildvcs=false nice go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" \
    > "$log" 2>&1 || { tail -n 5 "$log" >&2; fail store "the S3 server can't be built: see above"; }
  rm -f "$log"
}

# -- packages beside .venv -------------------------------------------------------------------------

# beside_venv NAME WHAT SIZE: the packages of docker/local/NAME.lock, in a folder of their own. Returns 1 where it can't.
beside_venv() {
  local uv folder=$STATE/$1
  if [ -d "$folder" ]; then
    say "$1" "$2 in $folder"
    return
  fi
  say "$1" "bringing $2 into $folder ($3)"
  uv=$(find_uv) || return 1
  rm -rf "$folder.partial"
  "$uv" pip install -q --python $VENV/bin/python --target "$folder.partial" --no-deps --require-hashes \
    -r "docker/local/$1.lock" || return 1
  mv "$folder.partial" "$folder"
}

setup_chdb() { # ClickHouse in a process: the tests read tables by it
  beside_venv chdb "ClickHouse's engine" "530 MB" ||
    say chdb "it can't be had, see above: the tests that read tables by it are skipped"
}

setup_moto() { # a stand-in of AWS Glue for the tests, and the client by which pyiceberg reads from it
  beside_venv moto "the stand-in of AWS Glue moto" "24 MB" || fail moto "it can't be had, see above"
}

setup_tpch() { # for a bench
  beside_venv tpch "DuckDB's generator of TPC-H's rows" "17 MB" || fail tpch "it can't be had, see above"
}

# -- browser ---------------------------------------------------------------------------------------

setup_browser() { # the tests of Airflow's UI drive it
  if there chromium; then
    say browser "$(chromium --version 2> /dev/null)"
    return
  fi
  by_apt browser "Chromium" chromium
}

# -- sshd -----------------------------------------------------------------------------------------

setup_sshd() { # the tests' bastion, and a PAM that knows its password; unpacked, as an installed one would begin to serve
  local fresh packages='openssh-server libwrap0 libpam-wrapper'
  there ssh || by_apt sshd "OpenSSH's client" openssh-client
  if compgen -G "$STATE/sshd/usr/lib/*/pam_wrapper" > /dev/null; then
    say sshd "an SSH server in $STATE/sshd"
    return
  fi
  there dpkg-deb || fail sshd "the tests' SSH server is missing, and this isn't Debian or Ubuntu: use docker/compose.yaml"
  say sshd "unpacking an SSH server into $STATE/sshd (2 MB)"
  rm -rf $STATE/sshd.partial
  mkdir -p $STATE/sshd.partial
  fresh=$(cd $STATE/sshd.partial && pwd)
  # shellcheck disable=SC2086 # one word for each package
  (cd "$fresh" && apt-get -q download $packages) > "$fresh/log" 2>&1 ||
    { locked apt apt_update > "$fresh/log" 2>&1 && (cd "$fresh" && apt-get -q download $packages); } >> "$fresh/log" 2>&1 ||
    { tail -n 5 "$fresh/log" >&2; fail sshd "an SSH server can't be had: see above"; }
  for package in "$fresh"/*.deb; do dpkg-deb -x "$package" "$fresh"; done
  rm -f "$fresh"/*.deb
  rm -rf $STATE/sshd
  mv $STATE/sshd.partial $STATE/sshd
}

# -- kafka -----------------------------------------------------------------------------------------

KAFKA=4.1.1

setup_kafka() { # the tests' broker: Kafka's jars, by the Ivy that pyspark ships
  if [ -d $STATE/kafka ]; then
    say kafka "a broker's jars in $STATE/kafka"
    return
  fi
  say kafka "bringing Kafka $KAFKA into $STATE/kafka (43 MB)"
  local log
  log=$(mktemp)
  rm -rf $STATE/kafka.partial
  by_ivy -dependency org.apache.kafka kafka_2.13 $KAFKA -confs default -types jar bundle \
    -retrieve "$STATE/kafka.partial/[artifact]-[revision].[ext]" > "$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail kafka "Kafka's jars can't be had: see above"; }
  mv $STATE/kafka.partial $STATE/kafka
  rm -f "$log"
}

# -- iceberg ---------------------------------------------------------------------------------------

ICEBERG=1.12.0
ICEBERG_SPARK=4.1

setup_iceberg() { # Spark as a reader of Iceberg tables, for the soak: no release of Iceberg's is for Spark 4.2
  local env=$STATE/iceberg-spark
  if [ -d $env ]; then
    say iceberg "Spark $ICEBERG_SPARK with Iceberg $ICEBERG in $env"
    return
  fi
  say iceberg "bringing Spark $ICEBERG_SPARK and Iceberg $ICEBERG into $env (500 MB)"
  local log name=iceberg-spark-runtime-${ICEBERG_SPARK}_2.13
  log=$(mktemp)
  rm -rf $env.partial
  { $VENV/bin/uv venv -q --python $VENV/bin/python $env.partial &&
    $VENV/bin/uv pip install -q --python $env.partial/bin/python "pyspark==$ICEBERG_SPARK.3" pandas pyarrow &&
    by_ivy -notransitive -dependency org.apache.iceberg $name $ICEBERG -confs default -types jar \
      -retrieve "$env.partial/[artifact].[ext]"; } > "$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail iceberg "it can't be had: see above"; }
  mv $env.partial/$name.jar $env.partial/iceberg.jar
  mv $env.partial $env
  rm -f "$log"
}

setup_iceberg_rest() { # an Iceberg REST catalog for the tests: Iceberg's own handlers over SQLite
  local folder=$STATE/iceberg-rest
  if [ -d $folder ]; then
    say iceberg "a REST catalog of Iceberg $ICEBERG in $folder"
    return
  fi
  say iceberg "bringing a REST catalog of Iceberg $ICEBERG into $folder (60 MB)"
  local log of
  log=$(mktemp)
  rm -rf $folder.partial
  for of in "org.apache.iceberg iceberg-spark-runtime-${ICEBERG_SPARK}_2.13 $ICEBERG" "org.xerial sqlite-jdbc 3.50.3.0"; do
    # shellcheck disable=SC2086 # organisation, name and version
    by_ivy -notransitive -dependency $of -confs default -types jar -retrieve "$folder.partial/[artifact].[ext]" \
      > "$log" 2>&1 ||
      { tail -n 5 "$log" >&2; fail iceberg "it can't be had: see above"; }
  done
  mv $folder.partial $folder
  rm -f "$log"
}

# -- engine ----------------------------------------------------------------------------------------

setup_engine() { # jars, an archive of classes and compiled kernels: what users have by the same command
  locked engine $VENV/bin/binlake setup
}

setup_engine_for_stores() {
  locked engine $VENV/bin/binlake setup --stores s3 azure
}

# -- all of it -------------------------------------------------------------------------------------

begin_steps

case "$*" in
  '') side_by_side 'python java engine' 'java mariadb tools' mysql ;;
  tests)
    side_by_side 'python java engine_for_stores kafka iceberg_rest chdb moto' 'java mariadb tools browser sshd' \
      'mysql mariadb_releases suites' 'azurite store'
    ;;
  bench) side_by_side 'python java engine tpch' 'java mariadb tools' mysql ;;
  demo) side_by_side 'python java engine' one_server ;;
  *)
    known='python|java|mariadb|mariadb_releases|mysql|tools|one_server|engine|engine_for_stores|suites|store|azurite'
    known+='|chdb|tpch|browser|sshd|kafka|moto|iceberg|iceberg_rest|(python|java|mariadb)-.+'
    for step in "$@"; do
      [[ $step =~ ^($known)$ ]] || { sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2; }
    done
    in_order "$@"
    ;;
esac
