#!/usr/bin/env bash
# Create .venv and install ALE into it. Called by the Makefile; safe to repeat.
#
# Torch: where no NVIDIA GPU is present, a CPU build is chosen. The plain wheel is taken only if it would bring no CUDA
# packages; otherwise uv, which knows where CPU builds are, installs it.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
torch=$(grep '^torch==' constraints.txt)

find_python() {
  for name in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$name" ] && command -v "$name" >/dev/null || continue
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'; then
      echo "$name"
      return
    fi
  done
  echo "setup: no Python between 3.11 and 3.13 found. Install one, or name it: make PYTHON=/path/to/python3.11" >&2
  return 1
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }

install_torch() {
  "$venv/bin/python" -c 'import torch' 2>/dev/null && return
  if has_gpu; then
    "$venv/bin/python" -m pip install --quiet "$torch"
  elif "$venv/bin/python" -m pip install --quiet --dry-run --report - "$torch" 2>/dev/null |
    grep -qE '"name": "(nvidia|cuda|triton)'; then
    echo "setup: no GPU here and the plain torch wheel brings CUDA; taking the CPU build through uv" >&2
    "$venv/bin/python" -m pip install --quiet uv
    "$venv/bin/uv" pip install --python "$venv/bin/python" --torch-backend=cpu "$torch"
  else
    "$venv/bin/python" -m pip install --quiet "$torch"
  fi
}

# One package that gem-llm needs comes as C code alone: installed first, so that a missing compiler shows before the downloads.
install_compiled() {
  local said
  "$venv/bin/python" -c 'import pycosat' 2>/dev/null && return
  said=$("$venv/bin/python" -m pip install --quiet -c constraints.txt pycosat 2>&1) && return
  printf '%s\n' "$said" | tail -n 5 >&2
  echo "setup: pycosat could not be installed, which is compiled here. Install a C compiler and Python's headers (Debian:" \
    "apt-get install gcc libc6-dev python3-dev), then run this again" >&2
  return 1
}

if [ ! -x "$venv/bin/python" ]; then
  python=$(find_python)
  "$python" -m venv "$venv"
fi
install_compiled
install_torch
"$venv/bin/python" -m pip install --quiet -c constraints.txt -e '.[train,dev]'
touch "$venv/.ready"
