#!/usr/bin/env bash
# From a fresh machine to a module that several processes train together, on MindSpore's engine and beside PyTorch's:
#
#     bash scripts/train_parallel.sh [--device CPU|GPU] [--workers N...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
if [[ " $* " == *' --device GPU '* ]]; then
  bridge_setup_gpu train scikit-learn matplotlib
else
  bridge_setup train 'aten-bridge[test]'
fi
cd "$BRIDGE_ROOT"
exec python3 -m scripts.parallel "$@"
