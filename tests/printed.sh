#!/bin/bash
# Runs a tutorial and compares what it prints with the comment at the end of its source:
#   tests/printed.sh PROGRAM SOURCE
# The comment is `// Prints` and lines that begin with `//   `; an … in it stands for anything, and as the last line for any number of lines.
set -euo pipefail
program=$1 source=$2
mapfile -t expected < <(sed -n '/^\/\/ Prints$/,$p' "$source" | tail -n +2 | sed 's|^//   ||; s|^//$||')
((${#expected[@]} > 0)) || { echo "$source does not end with what it prints"; exit 1; }
mapfile -t printed < <("$program")
wrong=0
last=$((${#expected[@]} - 1))
[ "${expected[last]}" != … ] || printed=("${printed[@]:0:last}" …)
for ((i = 0; i < ${#expected[@]} || i < ${#printed[@]}; ++i)); do
  pattern=$(sed 's/[][\\*?]/\\&/g; s/…/*/g' <<<"${expected[i]-}")
  # shellcheck disable=SC2053  # a pattern
  if ((i >= ${#expected[@]} || i >= ${#printed[@]})) || [[ ${printed[i]} != $pattern ]]; then
    printf 'line %d is      %s\n      should be %s\n' $((i + 1)) "${printed[i]-(missing)}" "${expected[i]-(nothing)}"
    wrong=1
  fi
done
exit $wrong
