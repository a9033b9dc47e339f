#!/usr/bin/env bash
# The tutorial on a fresh machine: a container that has Python and nothing else, from set-up to the last training.
#
#     scripts/fresh_machine.sh [IMAGE [OPTION OF docker run]...]
#
# IMAGE has Debian's apt and Python 3.11, 3.12 or 3.13 (default: python:3.11-slim); what README asks for is installed there.
# Options say what pip needs in your network, such as `--network host` or `-v /etc/pip.conf:/etc/pip.conf:ro`. It prints how
# long set-up and every part took and what each training reached, and fails where a part fails or a training does not learn.
# The part in a Docker image of one's own is left out: a fresh container has no engine.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${1:-python:3.11-slim}
shift || true
git archive HEAD | docker run --rm -i "$@" "$image" bash -c '
  set -euo pipefail
  mkdir /ale && cd /ale && tar x
  { apt-get update && apt-get install -y --no-install-recommends make gcc python3-dev libc6-dev; } >/tmp/apt.log 2>&1 ||
    { tail -n 5 /tmp/apt.log; exit 1; }
  make setup
  echo "set-up: $SECONDS s"
  mkdir build
  failed=0
  .venv/bin/python -m pytest -q -n0 -p no:cacheprovider --basetemp=build/tutorial --durations=5 \
    tests/integration/docs/test_tutorial.py -k "train_and_look or own_class" || failed=$?
  .venv/bin/ale compare build/tutorial/*/*/runs/*
  exit $failed
'
