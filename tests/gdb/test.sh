#!/bin/bash
# Compares what scripts/gdb/tessera.py shows of tests/gdb/program.cpp with tests/gdb/expected.txt. Exit code 77: no gdb
# with Python here may run programs.
#   test.sh CHECKOUT BUILD_FOLDER COMPILER FLAG…
set -euo pipefail
checkout=$1 build=$2
if ! gdb -nx -batch -ex 'python print("Python")' -ex run /bin/true 2>/dev/null | grep -q 'exited normally'; then
  echo "skipped: there is no gdb with Python here that may run programs"
  exit 77
fi
mkdir -p "$build"
"${@:3}" -g -O0 "$checkout/tests/gdb/program.cpp" -o "$build/program"
commands=(-ex "source $checkout/scripts/gdb/tessera.py" -ex "break stop_here" -ex run -ex up)
for variable in p w dense x y b t none; do commands+=(-ex "print $variable"); done
gdb -nx -batch "${commands[@]}" "$build/program" 2>&1 | sed -n '/^\$1 =/,$p' >"$build/shown.txt"
diff "$checkout/tests/gdb/expected.txt" "$build/shown.txt"
