#!/usr/bin/env bash
# Fetch axe-core, by which tests/browser looks for barriers in the page of `ale console`:
#
#   scripts/axe.sh
#
# One npm package at one version, checked by its digest, 600 kB, into the user's cache (XDG_CACHE_HOME, by default ~/.cache).
# Nothing of it is installed or run here. npm must be on PATH.
set -euo pipefail

version=4.10.3
digest=0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292
place="${XDG_CACHE_HOME:-$HOME/.cache}/ale/axe"
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT

(cd "$fetched" && npm pack --silent "axe-core@$version" >/dev/null)
echo "$digest  $fetched/axe-core-$version.tgz" | sha256sum --check --quiet
tar -xzf "$fetched/axe-core-$version.tgz" -C "$fetched" package/axe.min.js
mkdir -p "$place"
mv "$fetched/package/axe.min.js" "$place/axe-$version.min.js"
echo "$place/axe-$version.min.js"
