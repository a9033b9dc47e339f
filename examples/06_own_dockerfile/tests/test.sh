#!/bin/sh
# The answer stands here and not in the box, where the agent could read or change it.
if [ "$(cat /shop/best.txt)" = "Marrow Ltd" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo "best.txt does not name the customer with more than 100 euros"
  echo 0 > /logs/verifier/reward.txt
fi
