#!/bin/bash
# Fuzzes every reader for SECONDS together, beginning with the inputs in corpus.tar.xz; with names, those alone.
#   tests/fuzz/run.sh SECONDS [json|safetensors|…]
# For ten million inputs of one reader: run.sh 10000 NAME, whenever it changes.
# What was found is in build/fuzz/NAME-crash-…; new inputs are added to build/fuzz/corpus/NAME. TESSERA_FUZZ_SEED
# makes a run repeatable. Exits with 77 where
# there is no Clang with libFuzzer.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$here/../..
seconds=${1:?how many seconds?}
readers=("${@:2}")
((${#readers[@]})) || for source in "$here"/*.cpp; do readers+=("$(basename "$source" .cpp)"); done
compiler=$(command -v clang++-19 || command -v clang++ || true)
folder=${TESSERA_FUZZ_FOLDER:-$source_dir/build/fuzz}
mkdir -p "$folder/corpus"
# Every exception would search the stack that finds uses after return: half of the time of readers that refuse.
flags=(-std=c++20 -O1 -gline-tables-only -march=native -fsanitize=address,undefined -fno-sanitize-recover=all
  -fsanitize-address-use-after-return=never
  -I "$source_dir/include" -I "$source_dir/tests" -I "$source_dir/deps/usr/include")
if [ -z "$compiler" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(unsigned char const*, unsigned long) { return 0; }' |
  "$compiler" -fsanitize=fuzzer -x c++ - -o "$folder/probe" 2>/dev/null; then
  echo "skipped: there is no Clang with libFuzzer (libclang-rt-19-dev)"
  exit 77
fi
[ ! -e "$here/corpus.tar.xz" ] || tar -xJf "$here/corpus.tar.xz" -C "$folder/corpus" --skip-old-files
printf '%s\n' "${readers[@]}" | xargs -P "$(nproc)" -I NAME \
  "$compiler" "${flags[@]}" -fsanitize=fuzzer "$here/NAME.cpp" -o "$folder/NAME" -pthread

export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=2}  # frames of each allocation: 30 take a fifth of the time
each=$(((seconds + ${#readers[@]} - 1) / ${#readers[@]}))
export folder each
fuzz() {
  mkdir -p "$folder/corpus/$1"
  cd "$folder"
  if "./$1" -max_total_time="$each" -seed="${TESSERA_FUZZ_SEED:-0}" -max_len=20000 -rss_limit_mb=2048 -malloc_limit_mb=1024 -timeout=10 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$1-" "corpus/$1" >"$1.log" 2>&1; then
    echo "$1: $(sed -n 's/.*number_of_executed_units: *//p' "$1.log") inputs, nothing found"
  else
    tail -30 "$1.log"
    echo "$1: FAILED, see $folder/$1.log"
    return 1
  fi
}
export -f fuzz
printf '%s\n' "${readers[@]}" | xargs -P "$(nproc)" -I NAME bash -c 'fuzz NAME'
