#!/bin/bash
# There is no Python in this image: the checks are shell, reported the way pytest ends its runs.

source "$TEST_DIR/checks.sh"

passed=0 failed=0 summary=""
for check in $(declare -F | awk '{ print $3 }' | grep '^test_'); do
    if "$check"; then
        passed=$((passed + 1))
        summary+="PASSED tests/checks.sh::$check"$'\n'
    else
        failed=$((failed + 1))
        summary+="FAILED tests/checks.sh::$check - see the instruction"$'\n'
    fi
done

echo "=========================== short test summary info ============================"
printf '%s' "$summary"
echo "========================= $failed failed, $passed passed in 0.10s ========================="
[ "$failed" -eq 0 ]
