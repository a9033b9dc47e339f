#!/usr/bin/env bash
# The wheel on its own, then the unit tests that need no torch, on every other Python that the package promises.
# A Python that is not on this machine is SKIPPED, in capitals.
#
#   bash scripts/other_pythons.sh WHEEL [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
shift
# The trainer needs torch, whose CPU build pip does not choose by itself.
with_torch=(--ignore=tests/unit/rock_env/test_moved.py --ignore=tests/unit/agent_runtime/test_prompt_after.py)
tests=(tests/unit/rock_env tests/unit/agent_runtime tests/unit/sandboxes -m first "${with_torch[@]}")

# find VERSION: a Python of that version that runs: on PATH, or one of pyenv's (whose name on PATH may be a shim of none)
find_python() {
  for name in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    [ "$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ] && echo "$name" && return
  done
  return 1
}

# alone PYTHON CACHE: the tests; what fails beside others is run once more by itself and must pass then, as in .ci/run
alone() {
  "$1" -m pytest "${tests[@]}" -q -n 2 --dist worksteal -o cache_dir="$2" && return
  local failed
  failed=$("$1" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$2/v/cache/lastfailed")
  if [ "$failed" -gt 3 ]; then
    echo "$failed tests failed: too many to be chance"
    return 1
  fi
  "$1" -m pytest "${tests[@]}" -q -o cache_dir="$2" --last-failed --last-failed-no-failures none
}

[ $# -gt 0 ] || set -- 3.12 3.13
for version; do
  if ! python=$(find_python "$version"); then
    echo "SKIPPED: no Python $version on PATH or in pyenv: neither the wheel nor the unit tests ran on it"
    continue
  fi
  venv=build/python-$version
  rm -rf "$venv"
  "$python" -m venv "$venv"
  echo "Python $version: the wheel on its own"
  "$venv/bin/python" -m pip install --quiet "$wheel"
  (cd / && "$OLDPWD/$venv/bin/ale" --version && "$OLDPWD/$venv/bin/ale" --help >/dev/null && "$OLDPWD/$venv/bin/ale" env list)
  echo "Python $version: ${tests[*]}"
  "$venv/bin/python" -m pip install --quiet -c constraints.txt "$wheel[dev]"
  alone "$venv/bin/python" "$venv/pytest"
done
