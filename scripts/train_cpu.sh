#!/usr/bin/env bash
# From a fresh machine to loss curves: one PyTorch module, trained by bridge.cell in MindSpore and by PyTorch.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
bridge_setup train 'aten-bridge[test]'
exec python "$BRIDGE_ROOT/scripts/train_demo.py" "$@"
