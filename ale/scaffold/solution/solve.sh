#!/bin/sh
# A solution: proof that the task can be solved, and an example to imitate. It says what an agent would type.
set -e
cd /workspace
cut -d ' ' -f 2 visits.log | sort | uniq -c | sort -rn | head -n 1 | sed 's/.* //' > answer.txt
