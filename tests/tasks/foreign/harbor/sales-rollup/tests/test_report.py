import csv
import json
import unittest
from collections import Counter
from decimal import Decimal
from pathlib import Path

DATA = Path("/app/data")
REPORT = Path("/app/report.json")


def sales():
    for path in sorted(DATA.glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                yield path.stem, row["sku"], int(row["quantity"]), Decimal(row["unit_price"])


class TestReport(unittest.TestCase):
    def setUp(self):
        self.report = json.loads(REPORT.read_text())

    def test_has_exactly_the_asked_keys(self):
        self.assertEqual(set(self.report), {"shops", "best_sku", "rows"})

    def test_revenue_of_each_shop(self):
        expected = Counter()
        for shop, _, quantity, price in sales():
            expected[shop] += quantity * price
        self.assertEqual(set(self.report["shops"]), set(expected))
        for shop, revenue in expected.items():
            self.assertAlmostEqual(self.report["shops"][shop], float(revenue), places=2)

    def test_best_sku(self):
        revenue = Counter()
        for _, sku, quantity, price in sales():
            revenue[sku] += quantity * price
        self.assertEqual(self.report["best_sku"], revenue.most_common(1)[0][0])

    def test_refunds_are_no_rows(self):
        self.assertEqual(self.report["rows"], sum(quantity > 0 for _, _, quantity, _ in sales()))

    def test_the_data_is_untouched(self):
        self.assertEqual(
            [path.name for path in sorted(DATA.iterdir())], ["harbour.csv", "old-town.csv", "station.csv"]
        )


if __name__ == "__main__":
    unittest.main()
