"""How many of other people's tasks are read as they are, and why the others are not.

`python -m benchmarks.task_formats FOLDER [FOLDER ...]`. Each folder below that holds a `task.toml` or `task.yaml` is read as
`ale env register` reads it; nothing is built or run. The last line is one JSON object: of each format `found`, `read` and
`fetches` (tasks whose test scripts fetch from a network that their box lacks). Refusals go to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rock_env.grading.model import Unread
from rock_env.tasksets.detect import read_each

_FORMATS = {"task.toml": "harbor", "task.yaml": "terminal_bench"}


def count(folders: list[Path]) -> dict[str, dict[str, int]]:
    found = {name: {"found": 0, "read": 0, "fetches": 0} for name in _FORMATS.values()}
    for folder in folders:
        for file in sorted(each for name in _FORMATS for each in folder.rglob(name)):
            numbers = found[_FORMATS[file.name]]
            for task in read_each(file.parent):
                numbers["found"] += 1
                if isinstance(task, Unread):
                    print(task.why, file=sys.stderr)
                else:
                    numbers["read"] += 1
                    numbers["fetches"] += bool(task.verifier.download)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    print(json.dumps(count(parser.parse_args().folders)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
