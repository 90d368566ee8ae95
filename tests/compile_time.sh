#!/bin/bash
# The compile-time budget, as a multiple of including xsimd alone. usage: compile_time.sh SOURCE_DIR COMPILER FLAGS…
# Counts the instructions that the compiler executes at -O2, by valgrind: processor time depends on the machine and on
# what else it does, this number hardly. Exits with 77 where there is nothing to measure, or nothing to count by.
set -eu
source_dir=$1
compile=("${@:2}" -O2 -march=native -S -o /dev/null)
command -v valgrind >/dev/null || { echo "skipped: valgrind, which counts instructions, is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include <xsimd/xsimd.hpp>' >"$work/xsimd.cpp"
files=("$work/xsimd.cpp" "$source_dir/examples/tutorials/1_multiply.cpp")

# The driver is asked for the command of the compiler proper, which is what valgrind runs: the emulated processor would
# say otherwise what "native" is.
count() { # file
  local command count_file=$work/$(basename "$1").count
  command=$("${compile[@]}" "$1" -### 2>&1 | grep -E 'cc1plus|"-cc1"')
  eval "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=$count_file $command" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; return 1; }
  sed -n 's/^summary: //p' "$count_file"
}

declare -A instructions budget=([xsimd]=100 [1_multiply]=300)  # budgets in percent
# With AVX-512 kernels keep twice as many accumulators, each of which is a variable of the compiler.
if "${@:2}" -march=native -dM -E -x c++ /dev/null | grep -q __AVX512F__; then budget[1_multiply]=360; fi
over=0
for file in "${files[@]}"; do
  name=$(basename "$file" .cpp)
  instructions[$name]=$(count "$file")
  percent=$((100 * ${instructions[$name]} / ${instructions[xsimd]}))
  echo "$name: $((${instructions[$name]} / 1000000)) million instructions," \
    "$percent % of xsimd alone (budget ${budget[$name]} %)"
  ((percent <= ${budget[$name]})) || over=1
done
exit $over
