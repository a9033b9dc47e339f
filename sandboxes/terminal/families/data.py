"""Data wrangling with tables (CSV, TSV): sum, join, normalise, validate, pick, pivot."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from sandboxes.terminal.checks import keeps, text_is
from sandboxes.terminal.scenario import Scenario, Template
from sandboxes.terminal.words import Draw

__all__ = ["TEMPLATES", "script", "table"]


def table(rows: Sequence[Sequence[object]], separator: str = ",") -> str:
    """Return rows as CSV."""
    made = io.StringIO()
    csv.writer(made, delimiter=separator, lineterminator="\n").writerows(rows)
    return made.getvalue()


def script(text: str) -> str:
    """Return the action that writes a script for the next ones."""
    return f"edit work.py\n<<<<<<<\n=======\n{text}>>>>>>>"


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


_SUM_SALES = """\
import csv
from decimal import Decimal

totals = {}
for row in csv.DictReader(open("sales.csv")):
    totals[row["region"]] = totals.get(row["region"], 0) + int(row["units"]) * Decimal(row["price"])
with open("totals.csv", "w") as file:
    print("region,total", file=file)
    for region, total in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0])):
        print(f"{region},{total:.2f}", file=file)
"""


def _sales_by_region(draw: Draw) -> Scenario:
    regions, things = draw.names("place", 4), draw.names("thing", 6)
    columns = ["date", "region", "units", "price"]
    draw.rng.shuffle(columns)
    columns.insert(draw.number(0, 1), "product")  # early: its commas mislead who splits at commas
    totals = dict.fromkeys(regions, 0)
    rows: list[list[object]] = [[*columns]]
    for number in range(draw.number(25, 45)):
        region = regions[number] if number < 4 else draw.rng.choice(regions)
        units, cents = draw.number(1, 9), draw.number(100, 9999)
        totals[region] += units * cents
        product = draw.rng.choice([draw.rng.choice(things), f"{things[0]}, large", f'{things[1]} "old"'])
        row = {"date": f"2024-02-{number % 28 + 1:02}", "region": region, "product": product, "units": units}
        rows.append([{**row, "price": _money(cents)}[column] for column in columns])
    ranked = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
    files = {"sales.csv": table(rows).encode()}
    return Scenario(
        goal="sales.csv has a header line, and fields with commas are quoted. Write totals.csv with the header "
        "region,total and a line for each region: the sum of units times price over its sales, with two decimals; "
        "highest total first.",
        files=files,
        checks=(
            text_is("totals.csv", "region,total\n" + "\n".join(f"{r},{_money(c)}" for r, c in ranked)),
            keeps(files),
        ),
        solution=(
            "bash head -n 5 sales.csv",
            script(_SUM_SALES),
            "bash python3 work.py && rm work.py && cat totals.csv",
        ),
        shortcuts=(
            "bash echo region,total > totals.csv",
            f"bash awk -F, 'NR > 1 {{ t[${columns.index('region') + 1}] += ${columns.index('units') + 1} * "
            f"${columns.index('price') + 1} }} "
            'END { print "region,total"; for (r in t) printf "%s,%.2f\\n", r, t[r] | "sort -t, -k2,2nr" '
            "}' sales.csv > totals.csv",
        ),
    )


def _join_orders(draw: Draw) -> Scenario:
    people = draw.names("person", 6)
    numbers = draw.rng.sample(range(10, 99), 8)
    customers = dict(zip(numbers, people, strict=False))
    joined, orphans, orders = [], [], []
    for order in draw.rng.sample(range(100, 999), draw.number(14, 22)):
        customer, amount = draw.rng.choice(numbers), draw.number(1, 500)
        orders.append([order, customer, amount])
    orders += [[1001, numbers[6], 5], [1002, numbers[0], 7]]
    for order, customer, amount in sorted(orders):
        if customer in customers:
            joined.append(f"{order},{customers[customer]},{amount}")
        else:
            orphans.append(str(order))
    shuffled = sorted(customers.items(), key=lambda pair: pair[1])
    files = {
        "orders.csv": table([["order", "customer", "amount"], *orders]).encode(),
        "customers.csv": table([["id", "name"], *shuffled]).encode(),
    }
    program = (
        "NR == FNR { if (FNR > 1) name[$1] = $2; next } FNR == 1 { next } "
        '$2 in name { print $1 "," name[$2] "," $3; next } { print $1 > "orphans.new" }'
    )
    return Scenario(
        goal="orders.csv names the customer of each order by the id in customers.csv. Write joined.csv, with no header, "
        "one line per order: its number, the customer's name and the amount, separated by commas, ordered by the order's "
        "number. Orders whose customer is not in customers.csv do not belong there: write their numbers to orphans.txt, "
        "one per line, lowest first.",
        files=files,
        checks=(
            text_is("joined.csv", "\n".join(joined)),
            text_is("orphans.txt", "\n".join(orphans)),
            keeps(files),
        ),
        solution=(
            "bash head -n 3 orders.csv customers.csv",
            f"bash awk -F , '{program}' customers.csv orders.csv | sort -n > joined.csv; sort -n orphans.new > "
            "orphans.txt; rm orphans.new; tail -n 2 joined.csv orphans.txt",
        ),
        shortcuts=(
            "bash touch joined.csv orphans.txt",
            "bash tail -n +2 orders.csv | sort -n > joined.csv; : > orphans.txt",
        ),
    )


def _iso_dates(draw: Draw) -> Scenario:
    people, places = draw.names("person", 12), draw.names("place", 3)
    before, after = ["name,born,place"], ["name,born,place"]
    for number, person in enumerate(people):
        year, month, day = draw.number(1950, 2005), draw.number(1, 12), draw.number(1, 28)
        shown = (f"{day:02}.{month:02}.{year}", f"{month}/{day}/{year}", f"{year}-{month:02}-{day:02}")[
            number % 3
        ]
        place = draw.rng.choice([*places, f"{places[0]} 1/2/1999"])
        before.append(f"{person},{shown},{place}")
        after.append(f"{person},{year}-{month:02}-{day:02},{place}")
    files = {"people.csv": "".join(f"{line}\n" for line in before).encode()}
    program = (
        'NR > 1 && $2 ~ /\\./ { split($2, d, "."); $2 = d[3] "-" d[2] "-" d[1] } NR > 1 && $2 ~ /\\// { split($2, d, '
        '"/"); $2 = sprintf("%d-%02d-%02d", d[3], d[1], d[2]) } { print }'
    )
    return Scenario(
        goal="The column born of people.csv has dates in three forms: DD.MM.YYYY, M/D/YYYY (month first, no zeros in "
        "front) and YYYY-MM-DD. Bring all of them to YYYY-MM-DD in people.csv itself; everything else in the file stays.",
        files=files,
        checks=(text_is("people.csv", "\n".join(after)),),
        solution=(
            "bash head -n 5 people.csv",
            f"bash awk -F , -v OFS=, '{program}' people.csv > new.csv && mv new.csv people.csv; head -n 5 people.csv",
        ),
        shortcuts=(
            "bash sed -i -E 's#([0-9]{2})[.]([0-9]{2})[.]([0-9]{4})#\\3-\\2-\\1#' people.csv",
            "bash sed -i -E 's#([0-9]+)[./]([0-9]+)[./]([0-9]{4})#\\3-\\2-\\1#' people.csv",
        ),
    )


_VALIDATE = """\
good, bad = [], []
lines = open("readings.csv").read().splitlines()
for number, line in enumerate(lines[1:], 2):
    fields = line.split(",")
    if len(fields) != 3:
        bad.append(f"{number} fields")
        continue
    try:
        value = int(fields[2])
    except ValueError:
        bad.append(f"{number} number")
        continue
    if 0 <= value <= 100:
        good.append(line)
    else:
        bad.append(f"{number} range")
open("good.csv", "w").write("\\n".join([lines[0], *good]) + "\\n")
open("bad.txt", "w").write("\\n".join(bad) + "\\n")
"""


def _validate_rows(draw: Draw) -> Scenario:
    sensors = draw.names("thing", 5)
    good, bad = ["time,sensor,value"], []
    lines = ["time,sensor,value"]
    kinds = ["ok"] * draw.number(12, 20) + ["few", "many", "word", "empty", "high", "low", "edge"]
    draw.rng.shuffle(kinds)
    for number, kind in enumerate(kinds, 2):
        start = f"10:{number:02},{draw.rng.choice(sensors)}"
        value = draw.number(1, 99)
        line = {
            "few": start,
            "many": f"{start},{value},{value}",
            "word": f"{start},{value}x",
            "empty": f"{start},",
            "high": f"{start},{100 + value}",
            "low": f"{start},-{value}",
            "edge": f"{start},100",
        }.get(kind, f"{start},{value}")
        lines.append(line)
        reason = {
            "few": "fields",
            "many": "fields",
            "word": "number",
            "empty": "number",
            "high": "range",
            "low": "range",
        }
        if kind in reason:
            bad.append(f"{number} {reason[kind]}")
        else:
            good.append(line)
    files = {"readings.csv": "".join(f"{line}\n" for line in lines).encode()}
    return Scenario(
        goal="Check the lines of readings.csv after its header. A line is bad if it has not exactly three fields "
        "(reason: fields), or else its value is no whole number (reason: number), or else it is below 0 or above 100 "
        "(reason: range). Write good.csv with the header and the good lines, in order, and bad.txt with one line per bad "
        "line: its line number in readings.csv (the header is line 1), a space, and the reason.",
        files=files,
        checks=(text_is("good.csv", "\n".join(good)), text_is("bad.txt", "\n".join(bad)), keeps(files)),
        solution=(
            "bash cat -n readings.csv | head -n 8",
            script(_VALIDATE),
            "bash python3 work.py && rm work.py && cat bad.txt && wc -l good.csv",
        ),
        shortcuts=(
            "bash cp readings.csv good.csv; touch bad.txt",
            "bash head -n 1 readings.csv > good.csv; touch bad.txt",
        ),
    )


def _latest_readings(draw: Draw) -> Scenario:
    sensors = draw.names("thing", 6)
    rows = [
        (
            draw.rng.choice(sensors),
            f"2024-03-{draw.number(1, 28):02}T{hour % 24:02}:{minute:02}",
            draw.number(1, 99),
        )
        for hour, minute in enumerate(draw.rng.sample(range(60), draw.number(24, 36)))
    ]
    latest: dict[str, tuple[str, str, int]] = {}
    for row in rows:
        if row[0] not in latest or row[1] > latest[row[0]][1]:
            latest[row[0]] = row
    files = {"readings.tsv": table(rows, "\t").encode()}
    return Scenario(
        goal="Each line of readings.tsv has a sensor, a time and a value, separated by tabs, in no order. Write "
        "latest.tsv with the line of the latest time of each sensor, unchanged, ordered by the sensor's name.",
        files=files,
        checks=(text_is("latest.tsv", table([latest[name] for name in sorted(latest)], "\t")), keeps(files)),
        solution=(
            "bash head -n 5 readings.tsv; wc -l readings.tsv",
            "bash sort -k1,1 -k2,2r readings.tsv | awk '!seen[$1]++' > latest.tsv; cat latest.tsv",
        ),
        shortcuts=(
            "bash touch latest.tsv",
            "bash sort -u -k1,1 readings.tsv > latest.tsv",
            "bash sort readings.tsv > latest.tsv",
        ),
    )


_PIVOT = """\
import csv

cells, months = {}, set()
for row in csv.DictReader(open("rain.csv")):
    months.add(row["month"])
    place = cells.setdefault(row["place"], {})
    place[row["month"]] = place.get(row["month"], 0) + int(row["mm"])
order = sorted(months)
with open("wide.csv", "w") as file:
    print("place", *order, "all", sep=",", file=file)
    for place in sorted(cells):
        values = [cells[place].get(month, 0) for month in order]
        print(place, *values, sum(values), sep=",", file=file)
"""


def _pivot_rain(draw: Draw) -> Scenario:
    places, months = (
        draw.names("place", 4),
        [f"2024-{month:02}" for month in sorted(draw.rng.sample(range(1, 13), 4))],
    )
    rows = [
        (draw.rng.choice(places), draw.rng.choice(months), draw.number(1, 60))
        for _ in range(draw.number(14, 24))
    ]
    rows += [(place, months[0], draw.number(1, 60)) for place in places]
    rows += [(places[0], month, 1) for month in months]
    draw.rng.shuffle(rows)
    wide: list[list[object]] = [["place", *months, "all"]]
    for place in sorted(places):
        values = [sum(row[2] for row in rows if row[:2] == (place, month)) for month in months]
        wide.append([place, *values, sum(values)])
    files = {"rain.csv": table([("place", "month", "mm"), *rows]).encode()}
    return Scenario(
        goal="rain.csv has lines of place, month and mm; a place may have several lines for one month, or none. Write "
        "wide.csv with the header place, then all months in order, then all; and a line per place, in alphabetical "
        "order, with the sum of mm for each month (0 where there is none) and over all months.",
        files=files,
        checks=(text_is("wide.csv", table(wide)), keeps(files)),
        solution=(
            "bash sort rain.csv | head -n 8",
            script(_PIVOT),
            "bash python3 work.py && rm work.py && cat wide.csv",
        ),
        shortcuts=("bash touch wide.csv", "bash sort rain.csv > wide.csv"),
    )


TEMPLATES = (
    Template("sales-by-region", "data", "train", _sales_by_region),
    Template("join-orders", "data", "train", _join_orders),
    Template("iso-dates", "data", "train", _iso_dates),
    Template("validate-rows", "data", "train", _validate_rows),
    Template("latest-readings", "data", "train", _latest_readings),
    Template("pivot-rain", "data", "held_out", _pivot_rain),
)
"""The tasks of this family about tables."""
