#!/bin/bash

cd /tests
python3 -m unittest -v test_report 2>&1

if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
