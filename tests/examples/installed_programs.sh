#!/bin/sh
# Installs the programs of a build, moves what was installed, and trains a small model there.
set -eu
build=$1 cmake=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --component programs --prefix "$work/installed" >"$work/log"
mv "$work/installed" "$work/moved"
cd "$work"
for i in 1 2 3 4 5 6 7 8 9; do seq $((1000 * i)) $((1000 * i + 500)); done >text
moved/bin/tessera-pretrain --text text --layers 1 --hidden 32 --heads 2 --context 16 --steps 2 --updates 0 --density 0.25 --out runs \
  --name a --quiet
moved/bin/tessera-generate --checkpoint runs/a --tokens 4
test -e moved/share/bash-completion/completions/tessera-generate
test ! -e installed
