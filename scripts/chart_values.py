"""Write the values.yaml of the chart helm/rock, and the table of values in its README, from its values.schema.json.

The schema says of each value once what it is, its default and what is allowed.

    python scripts/chart_values.py [--check]
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "helm" / "rock"
BEGIN = "<!-- values: written by scripts/chart_values.py -->"
END = "<!-- end of values -->"
_COLUMNS = 100


def main() -> int:
    """Write both files, or with --check say which are not what the schema makes; return the exit code."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        sys.stderr.write(f"helm/rock/README.md must have the lines {BEGIN!r} and {END!r}. Put them back.\n")
        return 1
    wanted = {
        "values.yaml": values_file(schema),
        "README.md": f"{before}{BEGIN}\n{table(schema)}{END}{after}",
    }
    stale = [
        name
        for name, text in wanted.items()
        if not (CHART / name).is_file() or (CHART / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for name in stale:
            sys.stderr.write(f"helm/rock/{name} is not what its schema makes. Run `make docs`.\n")
        return 1 if stale else 0
    for name in stale:
        (CHART / name).write_text(wanted[name], encoding="utf-8")
    return 0


def values_file(schema: dict[str, Any]) -> str:
    """Return values.yaml: every default, under its description."""
    head = "# Values of the chart, written by scripts/chart_values.py from values.schema.json: change them there.\n"
    return head + "".join(_lines(schema["properties"], ""))


def _lines(properties: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in properties.items():
        if not indent:
            yield "\n"
        for line in textwrap.wrap(value["description"], _COLUMNS - len(indent)):
            yield f"{indent}# {line}\n"
        if "properties" in value:
            yield f"{indent}{name}:\n"
            yield from _lines(value["properties"], indent + "  ")
        elif value["default"] and isinstance(value["default"], dict):
            yield f"{indent}{name}:\n{textwrap.indent(_yaml(value['default']), indent + '  ')}"
        else:
            yield f"{indent}{name}: {json.dumps(value['default'])}\n"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=_COLUMNS)


def table(schema: dict[str, Any]) -> str:
    """Return the table of all values: name, default, meaning."""
    rows = [
        f"| `{path}` | {_shown(value)} | {value['description'].replace('|', chr(92) + '|')} |\n"
        for path, value in leaves(schema["properties"])
    ]
    return "| value | default | meaning |\n|---|---|---|\n" + "".join(rows)


def leaves(properties: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each value that is set by itself, with its dotted name."""
    for name, value in properties.items():
        if "properties" in value:
            yield from leaves(value["properties"], f"{path}{name}.")
        else:
            yield path + name, value


def _shown(value: dict[str, Any]) -> str:
    default = value["default"]
    if default in ("", [], {}):
        return "none"
    if isinstance(default, dict) and len(json.dumps(default)) > 60:
        return "see values.yaml"
    return f"`{json.dumps(default) if not isinstance(default, str) else default}`"


if __name__ == "__main__":
    sys.exit(main())
