#!/usr/bin/env bash
# Install CLI agents for the compatibility suite (tests/compat) and for training:
#
#   scripts/agents.sh [NAME...]         (default: all that can be had; `ale agent list` names them)
#
# They come from PyPI and npm by their ordinary clients, about 1.5 GB for all, into ALE_AGENTS (default: the user's cache),
# each once. npm must be on PATH (any Node that runs it); the Node that agents run on comes from npm. One that cannot be had
# is reported. PYTHON names another Python than .venv/bin/python.
set -euo pipefail

cd "$(dirname "$0")/.."
exec "${PYTHON:-.venv/bin/python}" -m ale agent install "${@:-all}"
