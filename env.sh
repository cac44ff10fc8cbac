# Source this file: it puts the repository's virtual environment first on the path, and defines what the scripts share.
#
#     source env.sh
#
# PYTHON       the interpreter that makes the environment; by default the first that the bridge works with
# BRIDGE_PINS  the releases of MindSpore, PyTorch and NumPy to install, as pip has them; by default those that
#              bridge/_versions.py prints
# PIP_*        pip's own settings, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS for another PyTorch build among them
#
# The bridge is built in place, and installed so that the environment finds it there. No library path is needed: the
# bridge's libraries find each other by $ORIGIN, and PyTorch's are loaded before them.

BRIDGE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export BRIDGE_ROOT
BRIDGE_VENV=$BRIDGE_ROOT/.venv
BRIDGE_BUILD_REQUIREMENTS=('setuptools>=70' wheel ninja pyyaml)

[[ :$PATH: == *:$BRIDGE_VENV/bin:* ]] || export PATH="$BRIDGE_VENV/bin:$PATH"

# Print the interpreter to use, or say what is missing.
bridge_python() {
  local candidate fits='import ensurepip, runpy, sys, venv
first, last = runpy.run_path(sys.argv[1])["PYTHON"]
sys.exit(not first <= sys.version_info[:2] <= last)'
  for candidate in ${PYTHON:-python3 $(compgen -c python3. | grep -Ex 'python3\.[0-9]+' | sort -rVu)}; do
    if "$candidate" -I -c "$fits" "$BRIDGE_ROOT/bridge/_versions.py" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "bridge needs a release of Python that README.md lists, with venv and pip; set PYTHON to one." >&2
  return 1
}

# bridge_once STEP KEY COMMAND...: run the command, unless it has succeeded with this key in this environment before.
bridge_once() {
  local stamp="$BRIDGE_VENV/.done-$1" key=$2
  shift 2
  if [[ -e $stamp && $(<"$stamp") == "$key" ]]; then return; fi
  "$@" && echo "$key" >"$stamp"
}

# Copy what comes in to the file LOG. Every few seconds, say how long it has taken and what came last.
bridge_heartbeat() {
  local log=$1 line='' last='' begin=$SECONDS shown=$SECONDS
  : >"$log"
  while read -r -t 5 line || (($? > 128)); do # above 128 it is the time that ran out, and not the input
    if [[ $line ]]; then
      echo "$line" >>"$log"
      last=$line
    fi
    if ((SECONDS - shown >= 5)); then
      echo "    $((SECONDS - begin)) s: ${last:0:100}"
      shown=$SECONDS
    fi
  done
}

# bridge_pip MESSAGE ARGUMENT...: pip install, with a line every few seconds; if it fails, with all that it said.
bridge_pip() {
  local log="$BRIDGE_VENV/pip.log"
  echo "$1"
  shift
  PYTHONUNBUFFERED=1 "$BRIDGE_VENV/bin/python" -m pip install --progress-bar off "$@" 2>&1 | bridge_heartbeat "$log"
  if ((PIPESTATUS[0])); then
    cat "$log" >&2
    return 1
  fi
}

# bridge_build PYTHON: build in place. Costs a few seconds if nothing has changed.
bridge_build() {
  NINJA_STATUS='    [%f/%t] %es ' "$1" "$BRIDGE_ROOT/setup.py" --quiet build_ext --inplace
}

# bridge_setup NAME REQUIREMENT...: the environment with the bridge built and installed, and then these requirements.
bridge_setup() {
  local name=$1 python pins
  shift
  if ! command -v "${CXX:-g++}" >/dev/null; then
    echo "bridge needs a C++ compiler with C++20: install g++, or set CXX." >&2
    return 1
  fi
  if [[ ! -x $BRIDGE_VENV/bin/python ]]; then
    python=$(bridge_python) || return
    echo "[1/5] making .venv with $("$python" --version)"
    "$python" -m venv "$BRIDGE_VENV" || return
  fi
  pins=${BRIDGE_PINS:-$("$BRIDGE_VENV/bin/python" -I "$BRIDGE_ROOT/bridge/_versions.py")} || return
  read -r -a pins <<<"${pins//$'\n'/ }"
  bridge_once pins "${pins[*]} ${BRIDGE_BUILD_REQUIREMENTS[*]}" \
    bridge_pip "[2/5] installing ${pins[*]}" "${pins[@]}" "${BRIDGE_BUILD_REQUIREMENTS[@]}" || return
  echo "[3/5] building the bridge: a minute or two on a fresh machine"
  bridge_build "$BRIDGE_VENV/bin/python" || return
  bridge_once bridge "$(cat "$BRIDGE_ROOT"/{pyproject.toml,setup.py,bridge/_versions.py} | sha256sum)" \
    bridge_pip "[4/5] installing the bridge as it is built here" \
    --no-build-isolation --editable "$BRIDGE_ROOT" || return
  # With the pins, so that pip leaves these releases where they are.
  bridge_once "$name" "$* $(sha256sum <"$BRIDGE_ROOT/pyproject.toml")" \
    bridge_pip "[5/5] installing $*" "${pins[@]}" "$@"
}

# bridge_setup_gpu NAME REQUIREMENT...: the same for a GPU. An environment at hand that has MindSpore and a CUDA build of
# PyTorch is used as it is, with the bridge built in place; otherwise .venv is made, where pip finds PyTorch's CUDA build.
bridge_setup_gpu() {
  local python
  if ! python=$(bridge_python) || ! "$python" -c 'import mindspore, torch; assert torch.version.cuda' 2>/dev/null; then
    # PyTorch brings CUDA's other headers, of the same release.
    BRIDGE_BUILD_REQUIREMENTS+=('nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*')
    bridge_setup "$@"
    return
  fi
  echo "building the bridge in place for $("$python" --version)"
  bridge_build "$python" || return
  export PYTHONPATH="$BRIDGE_ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
