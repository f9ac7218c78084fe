# shellcheck shell=bash
# Sourced by setup.sh: the order of its steps. A step is a function setup_NAME; python-3.13 and the like are for
# setup_release. It uses setup.sh's STATE, the folder that a machine's runs share, and its `fail`.

begin_steps() { # RUN: the folder of the marks of what this run did
  mkdir -p "$STATE"
  RUN=$(mktemp -d)
  trap 'rm -rf "$RUN"' EXIT
}

# locked NAME COMMAND…: no two at once, of this run or another: they would install over each other.
locked() { (flock 9 && shift && "$@") 9> "$STATE/$1.lock"; }

in_order() { # STEPS…
  local step
  for step in "$@"; do locked "setup.$step" _once "$step"; done
}

_once() { # STEP: not again where another list of this run did it
  [ ! -e "$RUN/$1" ] || return 0
  case $1 in
    *-*) setup_release "$1" ;;
    *) "setup_$1" ;;
  esac
  touch "$RUN/$1"
}

# end_process PID: with all that it started, and what these started.
end_process() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2> /dev/null || true); do end_process "$child"; done
  kill "$1" 2> /dev/null || true
}

# side_by_side "STEPS…"…: each list in order, the lists at the same time. A list ends with its first step that fails; the
# others come to their ends, since a package manager that is stopped in its work may not work again. What is missing then
# is said.
side_by_side() {
  local list job step jobs=() lacking=()
  # Jobs in the background ignore INT.
  trap 'for job in "${jobs[@]}"; do end_process "$job"; done; exit 130' INT
  trap 'for job in "${jobs[@]}"; do end_process "$job"; done; exit 143' TERM HUP
  for list in "$@"; do
    # shellcheck disable=SC2086 # one word for each step
    in_order $list &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || true; done
  for step in $*; do
    [ -e "$RUN/$step" ] || [[ " ${lacking[*]} " == *" $step "* ]] || lacking+=("$step")
  done
  [ ${#lacking[@]} = 0 ] || fail setup "not done, the first for a reason above: ${lacking[*]}"
}
