#!/bin/bash
# Each header compiles alone. One Clang takes all of them, each as a module of its own, which sees what it includes and
# nothing else; one by one they take twenty times as long. Headers of the standard library and xsimd are modules, too, or
# each of ours would compile them again.
# usage: headers.sh ALL_HEADERS CLANG FLAGS…   ALL_HEADERS has a line `#include "path"` for each
set -euo pipefail
headers=$(sed -n 's/^#include "\(.*\)"/\1/p' "$1")
compiler=("${@:2}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

folders=$("${compiler[@]}" -E -v -x c++ /dev/null 2>&1 | sed -n '/^#include <...>/,/^End/s/^ //p')
paths() { # names of headers
  local name folder
  for name in "$@"; do
    for folder in $folders; do
      [ ! -e "$folder/$name" ] || { echo "$folder/$name" && break; }
    done
  done
}
module() { # name, attribute, paths
  echo "module $1 $2 {"
  printf '  module "%s" { header "%s" export * }\n' $(printf '%s\n' "${@:3}" | sed p)
  echo '}'
}
# But <cassert>, which each may include with another NDEBUG.
standard=$(sed -n 's/^ *# *include <\([a-z_]*\)>.*/\1/p' $headers | grep -vx cassert | sort -u)
{
  module standard '[system]' $(paths $standard)
  module xsimd '[system]' $(paths xsimd/xsimd.hpp)
  module ours '' $headers
} >"$work/modules"
"${compiler[@]}" -w -fmodules -fmodules-cache-path="$work" -fmodule-map-file="$work/modules" -fmodule-name=ours \
  -x c++ -Xclang -emit-module -c "$work/modules" -o "$work/ours"
echo "each of $(wc -w <<<"$headers") headers compiles alone"
