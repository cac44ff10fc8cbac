#!/usr/bin/env bash
# Builds the bridge with given releases of MindSpore and PyTorch, and tests it:
#
#     bash scripts/versions.sh MINDSPORE TORCH [PYTHON] [ARGUMENT OF PYTEST...]
#     bash scripts/versions.sh 2.9.0 2.14.1 python3.10 tests/test_cpu_op.py
#
# It does so in a copy of the tree in build/versions/, which keeps its environment and its build for the next time.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mindspore=$1 torch=$2
export PYTHON=${3:-${PYTHON:-python3}}
shift $(($# < 3 ? $# : 3))
release=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
copy=$root/build/versions/mindspore$mindspore-torch$torch-python$release
mkdir -p "$copy"
copy=$(cd "$copy" && pwd -P) # MindSpore takes sources behind a link for others than those that it imported
find "$copy" -mindepth 1 -maxdepth 1 -not -name .venv -not -name build -exec rm -rf {} +
git -C "$root" ls-files -z --cached --others --exclude-standard |
  tar -C "$root" --null --files-from=- --ignore-failed-read -cf - | tar -C "$copy" -xf -
source "$copy/env.sh"
export BRIDGE_PINS="mindspore==$mindspore torch==$torch numpy<2"
bridge_setup test 'aten-bridge[test]'
cd "$copy"
echo "MindSpore $mindspore, PyTorch $torch, Python $release, $(git -C "$root" rev-parse --short HEAD):"
exec python -m pytest "${@:-tests}"
