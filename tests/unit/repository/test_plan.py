"""What `make test` says first: how long the tests take, and what skips here."""

import importlib.util
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts/test_plan.py"


def missing(parts, absent=(), *, root=True):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("plan_of_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    plan = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plan)
    here = lambda name: name not in absent  # noqa: E731
    return list(plan.missing(parts, here, here, root=root))


def test_the_first_line_says_how_long_it_takes() -> None:
    said = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True).stdout
    first, *others = said.splitlines()
    assert first.startswith("Tests (fast, components, rest): about ")
    assert "on two idle cores." in first
    assert others


def test_what_is_absent_is_named_with_what_skips_and_the_remedy() -> None:
    assert missing(["fast", "components", "rest"]) == []
    assert missing(["fast", "components", "rest"], ["docker", "postgres"]) == [
        "servers that share a store: no postgres (apt-get install postgresql)",
        "everything in containers: no docker (apt-get install docker.io)",
    ]


def test_a_part_tells_its_own_needs_alone() -> None:
    assert missing(["fast"], ["docker"], root=False) == []
    assert [line.partition(":")[0] for line in missing(["rest"], root=False)] == [
        "full disks, and an engine started for the tests alone"
    ]
