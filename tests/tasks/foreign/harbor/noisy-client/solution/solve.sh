#!/bin/sh
grep -hv '^#' /var/log/web/*.log | awk '$3 >= 500 && $3 <= 599 { print $1 }' |
  sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }' > /root/answer.txt
