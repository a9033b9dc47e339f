"""Which tests `make test` runs, that `make test-all` runs each other one once, and the faults planted to try the former."""

import ast
import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
PLANTED = ROOT / "scripts/planted_faults.py"


def pytest_commands(target: str) -> list[str]:
    """Return what pytest is told by a target of the Makefile."""
    said = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [line.partition("-m pytest ")[2] for line in said.splitlines() if "-m pytest " in line]


def folders(command: str) -> set[str]:
    return {word for word in command.split() if word.startswith("tests/")}


def test_all_of_it_is_what_make_test_runs_and_then_the_rest() -> None:
    first, everything = pytest_commands("test"), pytest_commands("test-all")
    assert everything[: len(first)] == first
    assert all(" -m first " in command for command in first)
    (rest,) = everything[len(first) :]
    assert ' -m "not first" ' in rest
    assert set.union(*map(folders, first)) == folders(rest)
    assert sum(len(folders(command)) for command in first) == len(folders(rest)), "no folder twice"


def test_what_belongs_to_make_test_is_told_by_its_folder_and_its_mark(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("first") is not None, "tests/unit, and not slow"
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.first" in path.read_text() and path != Path(__file__)
    }
    wanted = {"agents", "cli", "docker", "rest", "server", "train"}
    assert {name.split("/")[2] for name in found if name.startswith("tests/integration/")} >= wanted


def test_each_test_with_a_turn_has_one_that_comes() -> None:
    files = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    turns = {turn for text in files for turn in re.findall(r"mark\.turn\(([^)]*)\)", text)}
    assert turns == {"0", "1", "2", "place % 3"}


def test_ci_spreads_the_rest_over_six_commits_and_leaves_out_nothing(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    assert conftest is not None
    files = sorted((ROOT / "tests").rglob("test_*.py"))

    def runs(file: Path, commit: int, marked: int | None = None) -> bool:
        marker = marked if marked is None else SimpleNamespace(args=(marked,))
        item = SimpleNamespace(path=file, get_closest_marker=lambda _: marker)
        return bool(conftest.is_its_turn(item, commit % 3) and conftest.is_its_sixth(item, commit % 6))

    at = {file: [commit for commit in range(6) if runs(file, commit)] for file in files}
    always = {file.parent.name for file, commits in at.items() if len(commits) == 6}
    assert always == {"chaos", "escape"}
    assert {len(commits) for commits in at.values()} == {1, 6}
    assert all(list(at.values()).count([commit]) > len(files) / 9 for commit in range(6))
    assert [commit for commit in range(6) if runs(files[0], commit, marked=2)] == [2, 5]
    assert not {name for name in os.environ if name.startswith("ALE_CI_")}, "tests start whole suites"


def test_no_two_modules_of_tests_have_one_name() -> None:
    together = ("unit", "contract", "integration", "escape", "chaos")
    names = [path.name for folder in together for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    assert sorted(names) == sorted(set(names)), "one process collects them all"


def test_every_planted_fault_fits_the_tree_and_has_tests() -> None:
    spec = importlib.util.spec_from_file_location("planted_faults", PLANTED)
    assert spec is not None
    assert spec.loader is not None
    planted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    assert len({fault.name for fault in planted.FAULTS}) == len(planted.FAULTS) == 31
    layers = {fault.file.partition("/")[0] for fault in planted.FAULTS}
    assert layers == {"rock_env", "agent_runtime", "trainer", "ale", "sandboxes"}
    for fault in planted.FAULTS:
        text = (ROOT / fault.file).read_text()
        assert text.count(fault.old) == 1, fault
        ast.parse(text.replace(fault.old, fault.new))
        assert all((ROOT / name).exists() for name in (*fault.each, *planted.tests_of(fault.file)))
