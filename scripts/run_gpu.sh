#!/usr/bin/env bash
# From a machine with an NVIDIA GPU to printed results: build with the CUDA operators, demo, training.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
bridge_setup_gpu train scikit-learn matplotlib
python3 "$BRIDGE_ROOT/scripts/demo.py" --device GPU
exec python3 "$BRIDGE_ROOT/scripts/train_demo.py" --device GPU --steps 200
