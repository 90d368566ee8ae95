#!/bin/bash
# The README's example compiles, is at most 16 lines long, and prints what the README says.
# usage: readme.sh SOURCE_DIR COMPILER FLAGS…
set -eu
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

block() { # the n-th fenced block of the README
  awk -v n="$1" '/^```/ { inside = !inside; if (inside) ++count; next } inside && count == n' "$source_dir/README.md"
}
block 1 >"$work/example.cpp"
block 2 >"$work/expected"
lines=$(grep -c . "$work/example.cpp")
[ "$lines" -le 16 ] || { echo "the example has $lines lines"; exit 1; }
"${@:2}" -O1 -march=native "$work/example.cpp" -pthread -o "$work/example"
"$work/example" | diff - "$work/expected"
echo "the example prints what the README says"
