"""Data wrangling with records of other kinds: JSON, INI, logs and SQLite."""

from __future__ import annotations

import json
import math
from typing import Any

from sandboxes.terminal.checks import json_is, keeps, text_is
from sandboxes.terminal.families.data import script, table
from sandboxes.terminal.scenario import Scenario, Template
from sandboxes.terminal.words import Draw

__all__ = ["TEMPLATES"]


_EVENTS = """\
import csv
import json

events = sorted(map(json.loads, open("events.jsonl")), key=lambda event: event["id"])
with open("events.csv", "w", newline="") as file:
    table = csv.writer(file, lineterminator="\\n")
    table.writerow(["id", "user", "kind", "note"])
    for event in events:
        table.writerow([event["id"], event["user"]["name"], event["kind"], event.get("note") or ""])
"""


def _events_to_csv(draw: Draw) -> Scenario:
    people, words = draw.names("person", 4), draw.names("word", 4)
    ids = draw.rng.sample(range(1, 200), draw.number(12, 20))
    rows: list[tuple[int, str, str, str]] = []
    lines = []
    for number, event in enumerate(ids):
        person, kind = draw.rng.choice(people), draw.rng.choice(["login", "logout", "upload"])
        note = (
            draw.rng.choice([None, f"{words[0]}, {words[1]}", words[2], f'the "{words[3]}"'])
            if number
            else f"{words[0]}, x"
        )
        value: dict[str, object] = {
            "kind": kind,
            "id": event,
            "user": {"name": person, "age": draw.number(20, 60)},
        }
        if note is not None or number % 2:
            value["note"] = note
        lines.append(json.dumps(value))
        rows.append((event, person, kind, note or ""))
    files = {"events.jsonl": "".join(f"{line}\n" for line in lines).encode()}
    expected = table([("id", "user", "kind", "note"), *sorted(rows)])
    return Scenario(
        goal="Each line of events.jsonl is a JSON object. Write events.csv with the header id,user,kind,note and one "
        "line per event, ordered by id as a number: user is the name of the user, and note is empty where there is none "
        "or it is null. A field with a comma or quotation marks is quoted as usual in CSV, others are not.",
        files=files,
        checks=(text_is("events.csv", expected), keeps(files)),
        solution=(
            "bash head -n 4 events.jsonl",
            script(_EVENTS),
            "bash python3 work.py && rm work.py && head -n 4 events.csv",
        ),
        shortcuts=("bash echo id,user,kind,note > events.csv", "bash cp events.jsonl events.csv"),
    )


_SHOP = """\
import json, sqlite3, sys
people, sales = json.loads(sys.argv[1])
shop = sqlite3.connect("shop.db")
shop.execute("create table customer (id integer primary key, name text, closed integer)")
shop.execute("create table sale (customer integer, amount integer, refunded integer)")
shop.executemany("insert into customer values (?, ?, ?)", people)
shop.executemany("insert into sale values (?, ?, ?)", sales)
shop.commit()
"""
_BEST = """\
import sqlite3

rows = sqlite3.connect("shop.db").execute(
    "select name, sum(amount) total from sale join customer on customer = id where not refunded and not closed group by "
    "id order by total desc, name limit 3"
)
with open("best.txt", "w") as file:
    for name, total in rows:
        print(name, total, file=file)
"""


def _best_customers(draw: Draw) -> Scenario:
    names = draw.names("person", 7)
    people = [[number, name, int(number in (2, 5))] for number, name in enumerate(names, 1)]
    sales = [
        [draw.number(1, 7), draw.number(5, 400), int(draw.rng.random() < 0.25)]
        for _ in range(draw.number(40, 60))
    ]
    sales += [[number, draw.number(5, 90), 0] for number in range(1, 8)]
    sales.append([2, 5000, 0])
    totals = {name: 0 for _, name, closed in people if not closed}
    for customer, amount, refunded in sales:
        name = names[customer - 1]
        if name in totals and not refunded:
            totals[name] += amount
    best = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    data = json.dumps([people, sales])
    return Scenario(
        goal="shop.db is an SQLite database (the program sqlite3 may be absent; Python can read it). Write best.txt with "
        "the three customers whose accounts are not closed and whose sales that were not refunded have the highest sum "
        "of amounts: on each line the name, a space, and the sum; highest first, equal sums in alphabetical order.",
        setup=f"python3 -c '{_SHOP}' '{data}'",
        checks=(text_is("best.txt", "\n".join(f"{name} {total}" for name, total in best)),),
        solution=(
            "bash head -c 15 shop.db; python3 -c 'import sqlite3; "
            'print(*sqlite3.connect("shop.db").execute("select sql from sqlite_master"), sep="\\n")\'',
            script(_BEST),
            "bash python3 work.py && rm work.py && cat best.txt",
        ),
        shortcuts=(
            "bash touch best.txt",
            "bash python3 -c 'import sqlite3; [print(*row) for row in "
            'sqlite3.connect("shop.db").execute("select name, sum(amount) from sale '
            "join customer on customer = id group by id order by 2 desc limit 3\")]' > best.txt",
        ),
    )


_CONVERT_INI = """\
import configparser
import json


def typed(text):
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


settings = configparser.ConfigParser(interpolation=None)
settings.read("settings.ini")
value = {name: {key: typed(text) for key, text in settings.items(name)} for name in settings.sections()}
json.dump(value, open("settings.json", "w"), indent=2)
"""


def _ini_to_json(draw: Draw) -> Scenario:
    services, words = draw.names("service", 3), draw.names("word", 6)
    expected: dict[str, dict[str, object]] = {}
    lines = ["; settings of all services"]
    for number, service in enumerate(services):
        section: dict[str, object] = {
            "workers": draw.number(1, 64),
            "debug": draw.rng.choice([True, False]),
            "label": f"{words[2 * number]} = {words[2 * number + 1]}",
            "release": f"{draw.number(1, 9)}.{draw.number(0, 9)}",
        }
        expected[service] = section
        lines += ["", f"[{service}]", f"# of {service}"]
        lines += [
            f"{key} = {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in section.items()
        ]
    files = {"settings.ini": "".join(f"{line}\n" for line in lines).encode()}
    return Scenario(
        goal="Convert settings.ini to settings.json: an object with one member per section, each an object with its "
        "keys. Values that are whole numbers become JSON numbers, true and false become booleans, and all others stay "
        "strings (also 1.5).",
        files=files,
        checks=(json_is("settings.json", expected), keeps(files)),
        solution=(
            "bash cat settings.ini",
            script(_CONVERT_INI),
            "bash python3 work.py && rm work.py && cat settings.json",
        ),
        shortcuts=(
            "bash echo '{}' > settings.json",
            'bash python3 -c \'import configparser, json; c = configparser.ConfigParser(); c.read("settings.ini"); '
            'json.dump({s: dict(c[s]) for s in c.sections()}, open("settings.json", "w"))\'',
        ),
    )


def _errors_per_hour(draw: Draw) -> Scenario:
    routes = [f"/{word}" for word in draw.names("word", 4)]
    first, hours = draw.number(2, 9), draw.number(5, 8)
    quiet = draw.number(1, hours - 2)
    counts = dict.fromkeys(range(first, first + hours), 0)
    lines = []
    for hour in counts:
        for minute in sorted(draw.rng.sample(range(60), draw.number(5, 11))):
            status = draw.rng.choice([200, 200, 404, 500, 503])
            if hour - first == quiet and status >= 500:
                status = 404
            if status >= 500:
                counts[hour] += 1
            size = draw.rng.choice([500, 502, 77])
            caller, route = f"10.0.0.{draw.number(1, 9)}", draw.rng.choice(routes)
            lines.append(f'{caller} [2024-03-05T{hour:02}:{minute:02}:00] "GET {route}" {status} {size}')
    files = {"access.log": "".join(f"{line}\n" for line in lines).encode()}
    program = (
        '{ h = substr($2, 13, 2); if (first == "") first = h; last = h; if ($5 >= 500) n[h + 0]++ } END { for (h = first '
        '+ 0; h <= last + 0; h++) printf "%02d %d\\n", h, n[h] }'
    )
    return Scenario(
        goal="The lines of access.log end with the status and the size of an answer. Write hours.txt with a line for "
        "each hour of the day from the first to the last line of the log, also for those without any: the hour with two "
        "digits, a space, and the number of answers with a status of 500 or more.",
        files=files,
        checks=(
            text_is("hours.txt", "\n".join(f"{hour:02} {count}" for hour, count in counts.items())),
            keeps(files),
        ),
        solution=("bash head -n 3 access.log", f"bash awk '{program}' access.log > hours.txt; cat hours.txt"),
        shortcuts=(
            "bash touch hours.txt",
            "bash awk '$5 >= 500 { print substr($2, 13, 2) }' access.log | sort | uniq -c | awk '{ print $2, $1 }' > "
            "hours.txt",
        ),
    )


_FLATTEN = """\
import json


def walk(path, value):
    if isinstance(value, dict) and value:
        for key in value:
            yield from walk(f"{path}.{key}" if path else key, value[key])
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from walk(f"{path}[{number}]", item)
    else:
        yield f"{path} = {json.dumps(value)}"


print(*sorted(walk("", json.load(open("tree.json")))), sep="\\n", file=open("flat.txt", "w"))
"""


def _flatten_json(draw: Draw) -> Scenario:
    words, services = draw.names("word", 8), draw.names("service", 3)
    value: dict[str, dict[str, Any]] = {
        service: {
            words[2 * number]: [draw.number(1, 99), {"on": draw.rng.choice([True, False, None])}, []],
            words[2 * number + 1]: {
                "code": draw.code(service),
                "sizes": [draw.number(1, 9) for _ in range(3)],
            },
        }
        for number, service in enumerate(services)
    }
    value[words[6]] = {}
    flat = sorted(
        line
        for service in services
        for key, item in value[service].items()
        for line in (
            [
                f"{service}.{key}[0] = {item[0]}",
                f"{service}.{key}[1].on = {json.dumps(item[1]['on'])}",
                f"{service}.{key}[2] = []",
            ]
            if isinstance(item, list)
            else [
                f'{service}.{key}.code = "{item["code"]}"',
                *(f"{service}.{key}.sizes[{number}] = {size}" for number, size in enumerate(item["sizes"])),
            ]
        )
    )
    flat = sorted([*flat, f"{words[6]} = {{}}"])
    files = {"tree.json": json.dumps(value).encode()}
    return Scenario(
        goal="Write flat.txt with one line for each value in tree.json that is no object and no list, or an empty one: "
        "its path, then ' = ', then the value as JSON. In a path the members of objects are joined by dots and the items "
        "of lists are numbered from 0 in brackets, as in a.b[0].c = 1. Sort the lines by their characters' codes (as "
        "sort does with LC_ALL=C).",
        files=files,
        checks=(text_is("flat.txt", "\n".join(flat)), keeps(files)),
        solution=(
            "bash head -c 300 tree.json",
            script(_FLATTEN),
            "bash python3 work.py && rm work.py && head -n 6 flat.txt",
        ),
        shortcuts=("bash touch flat.txt", "bash python3 -m json.tool tree.json | sort > flat.txt"),
    )


_SLOW = """\
import math

times = {}
for line in open("requests.log"):
    route, took = line.split()
    times.setdefault(route, []).append(int(took.removesuffix("ms")))
with open("slow.txt", "w") as file:
    for route, values in sorted(times.items()):
        print(route, len(values), sorted(values)[math.ceil(0.9 * len(values)) - 1], file=file)
"""


def _slow_routes(draw: Draw) -> Scenario:
    times = {
        f"/{word}": [draw.number(3, 400) for _ in range(draw.number(11, 20))]
        for word in draw.names("word", 4)
    }
    lines = [f"{route} {took}ms\n" for route, values in times.items() for took in values]
    draw.rng.shuffle(lines)
    expected = [
        f"{route} {len(values)} {sorted(values)[math.ceil(0.9 * len(values)) - 1]}"
        for route, values in sorted(times.items())
    ]
    files = {"requests.log": "".join(lines).encode()}
    return Scenario(
        goal="Each line of requests.log is a route and the time that an answer took. Write slow.txt with a line for each "
        "route, in alphabetical order: the route, the number of its answers, and their 90th percentile in ms without the "
        "unit, separated by spaces. It is the smallest of its times such that at least 90 % of its times are not "
        "greater.",
        files=files,
        checks=(text_is("slow.txt", "\n".join(expected)), keeps(files)),
        solution=(
            "bash head -n 3 requests.log",
            script(_SLOW),
            "bash python3 work.py && rm work.py && cat slow.txt",
        ),
        shortcuts=(
            "bash touch slow.txt",
            "bash awk '{ n[$1]++; if ($2 + 0 > m[$1]) m[$1] = $2 + 0 } END { for (r in n) print r, n[r], m[r] }' "
            "requests.log | sort > slow.txt",
        ),
    )


TEMPLATES = (
    Template("events-to-csv", "data", "train", _events_to_csv),
    Template("best-customers", "data", "train", _best_customers),
    Template("ini-to-json", "data", "train", _ini_to_json),
    Template("errors-per-hour", "data", "train", _errors_per_hour),
    Template("flatten-json", "data", "train", _flatten_json),
    Template("slow-routes", "data", "held_out", _slow_routes),
)
"""The tasks of this family about anything else than tables."""
