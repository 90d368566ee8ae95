#!/bin/bash
# A project takes tessera::compiled where it is installed: its debug build has the bits of the header-only one, and one
# for another instruction set is refused by the linker, in words.
#   compiled.sh BUILD_FOLDER COMPILER OPTIONS_OF_THE_LIBRARY
set -euo pipefail
build=$1 compiler=$2 options=$3
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$build"
cmake -S "$here/compiled" -B "$build" -G Ninja -D CMAKE_CXX_COMPILER="$compiler" -D CMAKE_BUILD_TYPE=Debug \
  -D LIBRARY_OPTIONS="$options" >"$build.log"
cmake --build "$build"
"$build/compiled" "$build/a" | tee "$build/compiled.txt"
"$build/header_only" "$build/b" | cmp - "$build/compiled.txt"
cmp "$build"/{a,b}/tensors.safetensors
cmp <(sed -n 4p "$build/compiled.txt") <(sed -n 5p "$build/compiled.txt") # it was resumed
case $(uname -m) in
  x86_64)
    if cmake --build "$build" --target other_instruction_set >"$build/link.txt"; then exit 1; fi
    grep 'the_compiled_library_must_be_of_the_same::version_and_instruction_set::version_' "$build/link.txt"
    ;;
esac
