#!/bin/bash
# Compile-time budgets, as multiples of including xsimd alone. usage: compile_time.sh SOURCE_DIR COMPILER FLAGS…
# Processor time at -O2, the least of tries that take turns: five, and up to forty while something is over its budget
# (other work on the machine only ever adds). xsimd is compiled three times in a try, so that its tries are as long as
# the others and find a quiet moment no more often. Exits with 77 where there is nothing to measure.
set -eu
source_dir=$1
compile=("${@:2}" -O2 -march=native -c -o /dev/null)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include <xsimd/xsimd.hpp>' >"$work/xsimd.cpp"
echo '#include <tessera/tessera.hpp>' >"$work/tessera.cpp"
files=("$work/xsimd.cpp")
for pair in "include/tessera/tessera.hpp $work/tessera.cpp" "examples/1_multiply.cpp $source_dir/examples/1_multiply.cpp"; do
  read -r needed file <<<"$pair"
  if [ -e "$source_dir/$needed" ]; then files+=("$file"); else echo "skipped: there is no $needed yet"; fi
done
((${#files[@]} > 1)) || exit 77

declare -A least budget=([xsimd]=100 [tessera]=160 [1_multiply]=300)  # budgets in percent
TIMEFORMAT='%3U %3S'
percent() { echo $((100 * ${least[$1]} / ${least[xsimd]})); }
for ((try = 1; try <= 40; ++try)); do
  over=0
  for file in "${files[@]}"; do
    name=$(basename "$file" .cpp)
    times=$([ "$name" = xsimd ] && echo 3 || echo 1)
    read -r user system < <({ time for ((i = 0; i < times; ++i)); do "${compile[@]}" "$file"; done 2>"$work/errors"; } 2>&1)
    [ ! -s "$work/errors" ] || { cat "$work/errors"; exit 1; }
    ms=$(((10#${user/./} + 10#${system/./}) / times))
    ((ms < ${least[$name]:-1000000})) && least[$name]=$ms
    (($(percent "$name") <= ${budget[$name]})) || over=1
  done
  if ((try >= 5 && !over)); then break; fi
done

for file in "${files[@]}"; do
  name=$(basename "$file" .cpp)
  echo "$name: ${least[$name]} ms, $(percent "$name") % of xsimd alone (budget ${budget[$name]} %)"
done
exit $over
