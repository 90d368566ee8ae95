#!/bin/sh
# A program that was compiled without flags says so to standard error: tests/slow_build.sh COMPILER FLAGS…
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/program.cpp" <<'END'
#include <tessera/exec/context.hpp>
int main() {
  tessera::context first(1), second(1);
}
END
lines() { # compiler and flags: what the program says
  "$@" "$work/program.cpp" -pthread -o "$work/program"
  $environment "$work/program" 2>&1
}
expect() { # number of lines, words of theirs, output
  [ "$(printf %s "$3" | grep -c "$2")" = "$1" ] || { printf 'expected %s lines with "%s", but was told:\n%s\n' "$@"; exit 1; }
}
environment=env
expect 1 'without optimisation' "$(lines "$@")"
expect 0 . "$(lines "$@" -O1 -march=native)"
expect 0 . "$(lines "$@" -DTESSERA_QUIET)"
if grep -q avx2 /proc/cpuinfo; then expect 1 'add -march=native' "$(lines "$@" -O1)"; fi
environment="env TESSERA_QUIET=1"
expect 0 . "$(lines "$@" -O1)"
