#!/bin/sh
expected=$(cat /tests/expected.txt)
actual=$(cat /root/answer.txt 2>/dev/null)
if [ "$actual" = "$expected" ]; then
  echo "1.0" > /logs/verifier/reward.txt
else
  echo "expected $expected, got '$actual'"
  echo "0.0" > /logs/verifier/reward.txt
fi
