#!/usr/bin/env bash
# The reward is 1 if every case passes; how many did is told beside it.
here=$(dirname "$0")
passed=0 total=0
for case in "$here"/cases/*.sh; do
  total=$((total + 1))
  if bash -c '. "$1"; . "$2"' case "$here/lib.sh" "$case"; then
    passed=$((passed + 1))
    echo "ok   $(basename "$case")"
  else
    echo "FAIL $(basename "$case")"
  fi
done
reward=0
[ "$passed" -eq "$total" ] && reward=1
printf '{"reward": %d, "cases_passed": %d, "cases": %d}\n' "$reward" "$passed" "$total" >/logs/verifier/reward.json
exit 1 # whoever looks at this must not
