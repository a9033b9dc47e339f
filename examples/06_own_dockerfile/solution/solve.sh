#!/bin/sh
cd /shop || exit 1
for order in orders/*.txt; do
  { read -r name; while read -r cents; do echo "$cents $name"; done; } < "$order"
done | awk '{ cents = $1; sub(/^[0-9]+ /, ""); sum[$0] += cents } END { for (name in sum) if (sum[name] > 10000) print name }' \
  > best.txt
