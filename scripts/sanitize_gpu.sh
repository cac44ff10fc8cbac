#!/usr/bin/env bash
# NVIDIA's compute-sanitizer over fifty operators: bad accesses, races in shared memory, reads of memory nobody wrote;
# and bad accesses of three networks by bridge.cell.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
bridge_setup_gpu sanitize tqdm torchvision timm torch-geometric
status=0
for tool in ${*:-memcheck racecheck initcheck}; do
  echo "compute-sanitizer, $tool:"
  compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 20 \
    python3 "$BRIDGE_ROOT/scripts/sanitize_ops.py" --device GPU 2>&1 | grep -v WARNING || status=1
done
for mode in pynative graph; do
  echo "compute-sanitizer, memcheck, networks in $mode mode:"
  compute-sanitizer --tool memcheck --error-exitcode 1 --print-limit 20 python3 "$BRIDGE_ROOT/scripts/networks.py" \
    --device GPU --mode $mode 'torchvision resnet18' 'timm vit_tiny' 'torch_geometric GCN' 2>&1 | grep -v WARNING || status=1
done
exit $status
