"""How many of other people's tasks are read as they are, and why the others are not.

`python -m benchmarks.task_formats [--rows TABLE] PATH [PATH ...]`. Each folder below PATH that holds a `task.toml` or
`task.yaml` is read as `ale env register` reads it, and so is each row where PATH is a file of SWE-bench instances.
Nothing is built or run.
The last line is one JSON object: of each format `found`, `read` and `fetches` (tasks whose test scripts fetch from a network
that their box lacks); of rows also `told` (rows with names of tests that are not a test's alone). Refusals go to stderr.
`--rows` writes one line for each row of SWE-bench to a Markdown table: how its tests are named, and what was found.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from benchmarks.scaffold import finish, markdown_table, parser_of, say
from rock_env.grading.model import Task, Unread
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
                    say(task.why)
                else:
                    numbers["read"] += 1
                    numbers["fetches"] += bool(task.verifier.download)
    return found


def read_rows(file: Path) -> list[Task | Unread]:
    """Read the rows of a file as instances whose images hold their projects, as the published ones do."""
    with tempfile.TemporaryDirectory() as contexts:
        options = {"image": "swebench/sweb.eval.x86_64.{instance_id}", "contexts": contexts}
        return list(read_each(file, **options))


def naming(tests: tuple[str, ...]) -> str:
    """Return how a row names its tests."""
    if all("::" in test for test in tests):
        return "pytest"
    if all(re.fullmatch(r"\S+ \([\w.]+\)", test) for test in tests):
        return "unittest"
    return "unittest, docstrings" if any(" (" in test for test in tests) else "names or docstrings alone"


def verdict(task: Task | Unread) -> tuple[str, str, str]:
    """Return a row's instance, how its tests are named, and what is to be known before it is run."""
    if isinstance(task, Unread):
        return task.name, "", task.why
    told = [
        f"{name.removeprefix('tests_')} {count}" for name, count in task.labels if name.startswith("tests_")
    ]
    return task.name, naming((*task.verifier.must_pass, *task.verifier.keep_passing)), ", ".join(told)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    tasks = [task for path in given.paths if path.is_file() for task in read_rows(path)]
    verdicts = [verdict(task) for task in tasks]
    for task in tasks:
        if isinstance(task, Unread):
            say(task.why)
    if given.rows:
        given.rows.write_text(markdown_table(("row", "tests named as", "to be known"), verdicts) + "\n")
    found = count([path for path in given.paths if path.is_dir()])
    rows = {
        "found": len(tasks),
        "read": sum(isinstance(task, Task) for task in tasks),
        "told": sum(bool(told) for _, _, told in verdicts),
    }
    return finish({**found, "swe_bench": rows})


if __name__ == "__main__":
    sys.exit(main())
