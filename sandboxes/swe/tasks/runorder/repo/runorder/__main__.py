"""The command line."""

import sys
from pathlib import Path

from runorder.errors import RunOrderError
from runorder.parse import parse
from runorder.plan import plan


def main(arguments: list[str]) -> int:
    if not arguments:
        print("usage: python -m runorder FILE [GOAL ...]", file=sys.stderr)
        return 2
    try:
        needs = parse(Path(arguments[0]).read_text())
        for name in plan(needs, arguments[1:] or None):
            print(name)
    except RunOrderError as error:
        print(f"runorder: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
