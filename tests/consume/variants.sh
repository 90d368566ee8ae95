#!/bin/bash
# examples/variants, built against this checkout, on three CPUs. usage: variants.sh SOURCE_DIR BUILD_DIR COMPILER
set -euo pipefail
command -v qemu-x86_64 >/dev/null || { echo "skipped: qemu-user, which emulates CPUs, is not installed"; exit 77; }
cmake -S "$1/examples/variants" -B "$2" --fresh -D TESSERA_CHECKOUT="$1" -D CMAKE_CXX_COMPILER="$3" \
  -D CMAKE_BUILD_TYPE=Release -D TOTAL_VARIANTS="baseline;avx2" >/dev/null
cmake --build "$2" >/dev/null
run() { # CPU, the instruction set that it shall take
  local said
  said=$(qemu-x86_64 -cpu "$1" "$2" 2>/dev/null)
  [ "$said" = "10240 by $3" ] || { echo "$1: $said"; exit 1; }
}
run Nehalem "$2/variants" baseline
run SandyBridge "$2/variants" baseline # AVX alone
run Haswell "$2/variants" avx2
echo "the right one on three CPUs"
