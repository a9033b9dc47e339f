#!/bin/sh
# The grader. It comes into the box when the agent has ended, and says with a number from 0 to 1 what the work is worth.
# Never trust a file that the agent could have changed: the right answer stands here, not in visits.log.
if [ "$(cat /workspace/answer.txt)" = /prices ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo "answer.txt does not name the page that was visited most often"
  echo 0 > /logs/verifier/reward.txt
fi
