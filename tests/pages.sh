#!/bin/bash
# The code of a page compiles without a warning, and prints what the page says. Fences of a page:
#   ```cpp global   code outside of functions: includes, types, templates
#   ```cpp          statements; those of a page follow each other in one function
#   ```             the lines that the program prints, all of them
# A page without `global` code has <tessera/tessera.hpp> and its namespace.
# usage: pages.sh SOURCE_DIR PAGE COMPILER FLAGS…
set -euo pipefail
page=$1/$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

blocks() { # those after this fence; with the line where each begins, so that the compiler names the page's
  awk -v fence="$1" -v page="$page" -v code="$2" '
    !inside && /^```/ { inside = 1; wanted = $0 == fence; if (wanted && code) print "#line", NR + 1, "\"" page "\""; next }
    inside && /^```$/ { inside = 0; next }
    inside && wanted' "$page"
}
{
  grep -qx '```cpp global' "$page" || printf '#include <tessera/tessera.hpp>\nusing namespace tessera;\n'
  blocks '```cpp global' 1
  if grep -qx '```cpp' "$page"; then
    echo 'int main() {'
    blocks '```cpp' 1
    echo '}'
  fi
} >"$work/page.cpp"
blocks '```' 0 >"$work/expected"

if [ "$2" = README.md ]; then
  lines=$(blocks '```cpp global' 0 | grep -c .)
  [ "$lines" -le 16 ] || { echo "the example has $lines lines; 16 are enough"; exit 1; }
fi
"${@:3}" -Wall -Wextra -Werror -O1 -march=native "$work/page.cpp" -pthread -o "$work/page"
(cd "$work" && ./page) | diff - "$work/expected"
echo "$2 prints what it says"
