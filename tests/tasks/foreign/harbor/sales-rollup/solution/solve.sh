#!/bin/bash
set -euo pipefail

cat > /tmp/rollup.py <<'PY'
import csv
import json
from collections import defaultdict
from pathlib import Path

shops, skus, rows = defaultdict(float), defaultdict(float), 0
for path in Path("/app/data").glob("*.csv"):
    with path.open(newline="") as file:
        for sale in csv.DictReader(file):
            revenue = int(sale["quantity"]) * float(sale["unit_price"])
            shops[path.stem] += revenue
            skus[sale["sku"]] += revenue
            rows += int(sale["quantity"]) > 0
report = {
    "shops": {shop: round(revenue, 2) for shop, revenue in shops.items()},
    "best_sku": max(skus, key=skus.get),
    "rows": rows,
}
Path("/app/report.json").write_text(json.dumps(report, indent=2))
PY
python3 /tmp/rollup.py
