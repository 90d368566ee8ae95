#!/bin/bash
# The runs behind docs/experiments/learning_rates.md: trainings of a fixed number of steps, far shorter than the default, that
# choose learning rates. Prints the last validation loss of each. The sparse ones have four times the steps,
# which take about as long.
set -euo pipefail
cd "$(dirname "$0")/../../.."

out=${1:-runs/sweep-$(date +%s)}

try() { # name, options
  ./dev pretrain --out "$out" --name "$1" --quiet --eval-every 1000000 --checkpoint-every 1000000 "${@:2}" >/dev/null
  tail -1 "$out/$1/loss.csv" | cut -d, -f6 | xargs printf '%-14s %s\n' "$1"
}

for lr in 5e-4 1e-3 2e-3; do try "dense-$lr" --only dense --steps 200 --lr "$lr"; done
for lr in 2e-3 4e-3 8e-3; do try "sparse-$lr" --only sparse --steps 800 --sparse-lr "$lr"; done
