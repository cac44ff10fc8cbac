#!/usr/bin/env bash
# From a fresh machine to printed results: environment, build, demo. What is done already is skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
bridge_setup demo 'aten-bridge[test]'
exec python "$BRIDGE_ROOT/scripts/demo.py"
