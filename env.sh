# Source this file: it puts the repository's virtual environment first on the path, and defines what the scripts share.
#
#     source env.sh
#
# PYTHON   the interpreter that makes the environment; by default the first that MindSpore has wheels for
# PIP_*    pip's own settings, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS for another PyTorch build among them
#
# No library path is needed: the bridge's libraries find each other by $ORIGIN, and PyTorch's are loaded before them.

BRIDGE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export BRIDGE_ROOT
BRIDGE_VENV=$BRIDGE_ROOT/.venv
BRIDGE_PINS=(mindspore==2.10.0 torch==2.13.0 'numpy<2')
BRIDGE_BUILD_REQUIREMENTS=('setuptools>=70' wheel ninja pyyaml)

[[ :$PATH: == *:$BRIDGE_VENV/bin:* ]] || export PATH="$BRIDGE_VENV/bin:$PATH"

# Print the interpreter to use, or say what is missing.
bridge_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.10}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
        2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "bridge needs Python 3.10 to 3.12 with venv and pip; set PYTHON to one." >&2
  return 1
}

# bridge_once STEP KEY COMMAND...: run the command, unless it has succeeded with this key in this environment before.
bridge_once() {
  local stamp="$BRIDGE_VENV/.done-$1" key=$2
  shift 2
  if [[ -e $stamp && $(<"$stamp") == "$key" ]]; then return; fi
  "$@" && echo "$key" >"$stamp"
}

# What the installed bridge depends on: its sources, the compiler, and the releases that it was built with.
bridge_digest() {
  (
    cd "$BRIDGE_ROOT" || exit
    find aten_ops bridge ms_ext setup.py pyproject.toml -regex '.*\.\(py\|cpp\|cu\|h\|yaml\|toml\)' \
      -not -path 'bridge/include/*' -not -name bprops.py -print0 | sort -z | xargs -0 sha256sum
    "${CXX:-g++}" --version
    cd "$BRIDGE_VENV" && echo lib/python*/site-packages/{torch,mindspore,numpy}-*.dist-info
  ) | sha256sum
}

# bridge_setup NAME REQUIREMENT...: the environment with the bridge built and installed, and then these requirements.
bridge_setup() {
  local name=$1 python pip=("$BRIDGE_VENV/bin/python" -m pip install --quiet)
  shift
  if ! command -v "${CXX:-g++}" >/dev/null; then
    echo "bridge needs a C++ compiler with C++20: install g++, or set CXX." >&2
    return 1
  fi
  if [[ ! -x $BRIDGE_VENV/bin/python ]]; then
    python=$(bridge_python) || return
    echo "making .venv with $("$python" --version)"
    "$python" -m venv "$BRIDGE_VENV" || return
  fi
  bridge_once pins "${BRIDGE_PINS[*]} ${BRIDGE_BUILD_REQUIREMENTS[*]}" \
    bridge_announce "installing ${BRIDGE_PINS[*]}" \
    "${pip[@]}" "${BRIDGE_PINS[@]}" "${BRIDGE_BUILD_REQUIREMENTS[@]}" || return
  bridge_once bridge "$(bridge_digest)" \
    bridge_announce "building the bridge: a minute or two on a fresh machine" \
    "${pip[@]}" --no-build-isolation "$BRIDGE_ROOT" || return
  bridge_once "$name" "$* $(sha256sum <"$BRIDGE_ROOT/pyproject.toml")" \
    bridge_announce "installing $*" "${pip[@]}" "$@"
}

# bridge_announce MESSAGE COMMAND...
bridge_announce() {
  echo "$1"
  shift
  "$@"
}

# bridge_setup_gpu NAME REQUIREMENT...: the same for a GPU. An environment at hand that has MindSpore and a CUDA build of
# PyTorch is used as it is, with the bridge built in place; otherwise .venv is made, where pip finds PyTorch's CUDA build.
bridge_setup_gpu() {
  local python
  if ! python=$(bridge_python) || ! "$python" -c 'import mindspore, torch; assert torch.version.cuda' 2>/dev/null; then
    BRIDGE_BUILD_REQUIREMENTS+=('nvidia-cuda-crt==13.0.*') # PyTorch brings CUDA's other headers, of the same release
    bridge_setup "$@"
    return
  fi
  bridge_announce "building the bridge in place for $("$python" --version)" \
    "$python" "$BRIDGE_ROOT/setup.py" --quiet build_ext --inplace || return
  export PYTHONPATH="$BRIDGE_ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
