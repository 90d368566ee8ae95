#!/bin/bash
# Makes the Conan package of a checkout, without network, and lets a project take it, in a folder of its own; then with
# the public index, if that can be reached. Exit code 77: there is no Conan here.
#   test.sh CHECKOUT BUILD_FOLDER COMPILER XSIMD_INCLUDE
set -euo pipefail
checkout=$1 build=$2
export CXX=$3 XSIMD_INCLUDE=$4 CONAN_HOME=$2/home
unset CC
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v conan >/dev/null; then
  echo "skipped: there is no conan here (pip install conan)"
  exit 77
fi
rm -rf "$build" && mkdir -p "$build"
conan profile detect
conan remote disable '*'
conan remote add offline "$here/index" --type local-recipes-index
cp -r "$checkout/test_package" "$build" # Conan would build it in the checkout
create() { conan create "$checkout" --test-folder "$build/test_package" --build=missing "$@"; }
settings=(-s compiler.cppstd=20 -s build_type=Release -c tools.cmake.cmaketoolchain:generator=Ninja)

echo "==== conan create"
create "${settings[@]}"

echo "==== a project with a conanfile.txt"
cp -r "$here/app" "$here/../app.cpp" "$build"
mv "$build/app.cpp" "$build/app"
cd "$build/app"
conan install . "${settings[@]}"
cmake --preset conan-release
cmake --build --preset conan-release
build/Release/app
build/Release/variants

echo "==== tessera::compiled, without a type of models, which would take long"
compiled=(-o 'tessera/*:header_only=False' -o 'tessera/*:march=native' -o 'tessera/*:types=')
conan create "$checkout" --test-folder "" --build=missing "${settings[@]}" "${compiled[@]}"
cp -r "$here/compiled" "$build"
cd "$build/compiled"
conan install . "${settings[@]}" "${compiled[@]}"
cmake --preset conan-release
cmake --build --preset conan-release
build/Release/compiled

echo "==== what is refused, and says what to do"
refuses() { # words, options
  local words=$1 said
  shift
  said=$(create "$@" 2>&1) && { echo "not refused: $*"; exit 1; }
  grep -F "$words" <<<"$said" || { echo "$said"; exit 1; }
}
refuses "give -s compiler.cppstd=20" -s compiler.cppstd=17
refuses "gcc >= 12 or clang >= 16" -s compiler=gcc -s compiler.version=11 -s compiler.cppstd=20 -s compiler.libcxx=libstdc++11
refuses "Linux, x86_64" -s arch=armv8 -s compiler.cppstd=20

echo "==== the recipe for the public index, from an archive on disk"
cd "$build"
tar -czf tessera.tar.gz -C "$checkout" --transform 's,^,tessera/,' include src cmake scripts/gdb packaging/address CMakeLists.txt LICENSE
python3 "$checkout/packaging/conan_center.py" . --homepage https://tessera.example --archive tessera.tar.gz
version=$(sed -n 's/^  "\(.*\)":$/\1/p' recipes/tessera/config.yml)
conan create recipes/tessera/all --version "$version" --build=missing "${settings[@]}"
[ -s "$checkout/packaging/address" ] ||
  grep "there is no public address yet" <<<"$(python3 "$checkout/packaging/conan_center.py" . 2>&1)"

echo "==== with the xsimd of the public index"
export CONAN_HOME=$build/online
conan profile detect
if timeout 60 conan list 'xsimd/*' -r conancenter 2>&1 | grep -q 'xsimd/1'; then
  create "${settings[@]}"
else
  echo "skipped: the public index cannot be reached from here"
fi
