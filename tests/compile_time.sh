#!/bin/bash
# The compile-time budgets, as multiples of including xsimd alone. usage: compile_time.sh SOURCE_DIR COMPILER FLAGS…
# Counts the instructions that the compiler executes at -O2, by valgrind: processor time depends on the machine and on
# what else it does, this number hardly. xsimd is counted for AVX2 on every x86: GCC's headers of intrinsics switch
# targets for each instruction set that is not compiled for, so that the more of them a CPU has, the sooner xsimd alone
# compiles. The example is counted for AVX-512 with every engine, which has the most code, whatever this CPU is. Exits with 77
# where there is nothing to count by.
set -eu
source_dir=$1
compiler=("${@:2}" -O2)
command -v valgrind >/dev/null || { echo "skipped: valgrind, which counts instructions, is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The driver is asked for the command of the compiler proper, which is what valgrind runs: the emulated processor would
# say otherwise what "native" is.
count() { # file, flags of the instruction set
  local command count_file=$work/count
  command=$("${compiler[@]}" "${@:2}" -S -o /dev/null "$1" -### 2>&1 | grep -E 'cc1plus|"-cc1"')
  eval "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=$count_file $command" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; return 1; }
  sed -n 's/^summary: //p' "$count_file"
}

narrow=(-march=native) wide=(-march=native)
if [ "$(uname -m)" = x86_64 ]; then
  narrow=(-march=x86-64-v3)
  wide=(-march=sapphirerapids)
fi
echo '#include <xsimd/xsimd.hpp>' >"$work/xsimd.cpp"
alone=$(count "$work/xsimd.cpp" "${narrow[@]}")
echo "xsimd alone, for ${narrow[*]}: $((alone / 1000000)) million instructions"

within() { # what, file, flag of the instruction set, budget in percent
  local instructions percent
  instructions=$(count "$2" "$3")
  percent=$((100 * instructions / alone))
  echo "$1, for $3: $((instructions / 1000000)) million instructions, $percent % (budget $4 %)"
  ((percent <= $4))
}
echo '#include <tessera/tessera.hpp>' >"$work/tessera.cpp"
within tessera.hpp "$work/tessera.cpp" "${narrow[@]}" 160
within 1_multiply "$source_dir/examples/tutorials/1_multiply.cpp" "${wide[@]}" 300
