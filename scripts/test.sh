#!/usr/bin/env bash
# Linters and tests, in an environment that this script makes. Fails if any of them does; pytest's summary comes last.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
bridge_setup test 'aten-bridge[test,lint]'
cd "$BRIDGE_ROOT"
status=0
ruff check . || status=1
ruff format --check . || status=1
mypy || status=1
mypy --allow-untyped-defs setup.py scripts/*.py scripts/{bench,conformance,misuse,parallel,ported,ported/files,structure}/*.py tests/*.py || status=1
find ms_ext -name '*.h' -o -name '*.cpp' -o -name '*.cu' | xargs clang-format --dry-run -Werror aten_ops/leaky_relu.cpp \
  scripts/examples/*/*.{h,cpp,cu} tests/kernels/*.* tests/kernels/*/* || status=1
((status == 0)) || echo "linters failed, see above" >&2
pytest tests -n "${BRIDGE_JOBS:-2}" --dist worksteal || status=1
exit $status
