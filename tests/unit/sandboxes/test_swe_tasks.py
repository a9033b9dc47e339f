"""The tasks of the swe environment: how many, how they are split, what the agent is shown, and what the expert does."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections import Counter

import pytest
from pydantic import ValidationError

from rock_env.errors import InvalidArgument, UnknownName
from rock_env.tools import Edit, Malformed, RunTests, Undo, View, parse_call
from rock_env.tools.edits import Applied, apply_edit
from sandboxes.swe import ENV
from sandboxes.swe.bugs.mutate import TRAIN_FAMILIES, UNSEEN_FAMILIES, plant
from sandboxes.swe.catalog import SweTasks, load_task, make_tasks
from sandboxes.swe.data import SweTask
from sandboxes.swe.factory import PACKAGES, difficulty, package_digest, read_index
from sandboxes.swe.params import SweParams

PARAMS = SweParams()
INDEX = read_index()
HANDMADE = SweParams(source="handmade")


def every(params: SweParams) -> list[SweTask]:
    tasks = SweTasks(params)
    return [
        load_task(params, tasks.get(split, index).payload)
        for split in tasks.splits
        for index in range(tasks.count(split))
    ]


def test_there_are_many_tasks_of_every_family_in_every_package() -> None:
    assert len(INDEX.tasks) >= 500
    assert len({task.key for task in INDEX.tasks}) == len(INDEX.tasks)
    for split, families in (
        ("train", TRAIN_FAMILIES),
        ("held_out", TRAIN_FAMILIES),
        ("held_out_family", UNSEEN_FAMILIES),
    ):
        counts = Counter(task.family for task in INDEX.tasks if task.split == split)
        assert set(counts) == set(families)
        assert min(counts.values()) >= 0.75 * max(counts.values()), counts
        of_package = Counter(task.package for task in INDEX.tasks if task.split == split)
        assert max(of_package.values()) <= 24
    assert {task.package for task in INDEX.tasks} == set(INDEX.packages)


def test_the_readme_tells_how_many() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (PACKAGES.parent / "README.md").read_text(), re.M)
    told = {name: int(count) for name, count in rows if name in SweTasks(PARAMS).splits}
    assert told == Counter(task.split for task in INDEX.tasks)


def test_splits_share_no_package_and_the_last_no_family() -> None:
    packages = {
        split: {task.package for task in INDEX.tasks if task.split == split}
        for split in SweTasks(PARAMS).splits
    }
    assert not packages["train"] & packages["held_out"]
    assert not packages["train"] & packages["held_out_family"]
    share = len(packages["held_out"]) / len(INDEX.packages)
    assert 0.3 <= share <= 0.35


def test_the_index_is_of_these_packages() -> None:
    """Otherwise run scripts/swe_tasks.py; that the tests fail as it says is checked with pytest elsewhere."""
    names = {path.name for path in PACKAGES.iterdir() if (path / path.name).is_dir()}
    assert set(INDEX.packages) == names
    assert {name: package_digest(name) for name in names} == {
        name: package.digest for name, package in INDEX.packages.items()
    }


@pytest.mark.parametrize("planted", INDEX.tasks[::7], ids=lambda planted: planted.key)
def test_a_planted_task_is_consistent_and_tells_nothing(planted) -> None:  # type: ignore[no-untyped-def]
    data = load_task(PARAMS, planted.key)
    original = (PACKAGES / planted.package / planted.file).read_text()
    files = dict(data.repo)
    assert files[planted.file].decode() == plant(original, planted.bug) != original
    assert not [path for path in files if path.startswith("hidden")]
    assert not {content for _, content in data.hidden} & set(files.values())
    known = {*data.fail_to_pass, *data.pass_to_pass}
    assert len(known) == len(data.fail_to_pass) + len(data.pass_to_pass)
    assert data.fail_to_pass
    sources = {path: content.decode() for path, content in data.hidden}
    for test in known:
        file, _, name = test.partition("::")
        assert f"def {name}(" in sources[file]
    assert planted.report
    assert planted.file not in planted.report
    assert not any(len(line) > 8 and line in planted.report for line in planted.new.split("\n"))
    assert 0.0 <= planted.difficulty <= 1.0


@pytest.mark.parametrize("planted", INDEX.tasks[::5], ids=lambda planted: planted.key)
def test_the_expert_looks_errs_sometimes_and_repairs(planted) -> None:  # type: ignore[no-untyped-def]
    calls = [parse_call(action) for action in load_task(PARAMS, planted.key).solution]
    assert not [call for call in calls if isinstance(call, Malformed)]
    fix = Edit(planted.file, planted.new, planted.old)
    assert calls[0] == RunTests()
    assert View(planted.file) in calls
    assert calls[-2:] == [fix, RunTests()]
    assert len([call for call in calls if isinstance(call, View)]) in (1, 2)
    edits = [call for call in calls if isinstance(call, Edit)]
    assert len(edits) == 1 + (planted.slip is not None)
    assert calls.count(Undo()) == len(edits) - 1


def test_every_expert_ends_with_the_original_file() -> None:
    for planted in INDEX.tasks:
        data = load_task(PARAMS, planted.key)
        versions = [dict(data.repo)[planted.file]]
        for call in map(parse_call, data.solution):
            if isinstance(call, Edit):
                done = apply_edit(versions[-1], call)
                assert isinstance(done, Applied), (planted.key, done)
                versions.append(done.content)
            elif call == Undo():
                versions.pop()
        assert len(versions) == 2
        assert versions[-1] == (PACKAGES / planted.package / planted.file).read_bytes(), planted.key


def test_the_expert_errs_in_half_of_the_tasks_and_looks_at_a_wrong_file_first_in_a_quarter() -> None:
    assert 0.4 <= sum(task.slip is not None for task in INDEX.tasks) / len(INDEX.tasks) <= 0.6
    looks = [
        next(action for action in load_task(PARAMS, task.key).solution if action.startswith("view"))
        for task in INDEX.tasks
    ]
    wrong = sum(look != f"view {task.file}" for look, task in zip(looks, INDEX.tasks, strict=True))
    assert 0.15 <= wrong / len(INDEX.tasks) <= 0.35


def test_an_index_always_means_the_same_task() -> None:
    tasks, again = SweTasks(PARAMS), SweTasks(SweParams.model_validate_json(PARAMS.canonical()))
    for split in tasks.splits:
        for index in (0, tasks.count(split) // 2, tasks.count(split) - 1):
            task = tasks.get(split, index)
            assert task == again.get(split, index)
            assert task.id == f"{split}/{index}"
            assert task.payload not in task.instruction
            assert {path.partition("/")[0] for path, _ in task.files} == {
                load_task(PARAMS, task.payload).name
            }


def test_the_first_tasks_of_a_split_are_mixed() -> None:
    first = [load_task(PARAMS, SweTasks(PARAMS).get("train", index).payload) for index in range(40)]
    assert {task.family for task in first} == set(TRAIN_FAMILIES)
    assert len({task.name for task in first}) >= 12


def test_families_and_difficulty_narrow_the_choice() -> None:
    some = SweParams.model_validate({"families": "off_by_one, wrong_default", "max_difficulty": 0.5})
    found = [
        load_task(some, SweTasks(some).get("train", n).payload) for n in range(SweTasks(some).count("train"))
    ]
    assert {task.family for task in found} == {"off_by_one", "wrong_default"}
    assert max(task.difficulty for task in found) <= 0.5
    assert SweTasks(some).count("held_out_family") == 0
    whole = sum(SweTasks(PARAMS).count(split) for split in SweTasks(PARAMS).splits)
    halves = [SweParams(max_difficulty=0.5), SweParams(min_difficulty=0.51)]
    assert sum(SweTasks(half).count(s) for half in halves for s in SweTasks(half).splits) == whole


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"families": "off_by_one,typo"}, "no bug family 'typo'; the families are off_by_one, "),
        ({"source": "quixbugs"}, "needs path=FOLDER"),
        ({"path": "somewhere"}, "path is for source=quixbugs"),
        ({"source": "handmade", "families": "off_by_one"}, "are for source=factory"),
        ({"source": "handmade", "min_difficulty": 0.5}, "are for source=factory"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SweParams.model_validate(wrong)


def test_difficulty_grows_with_what_makes_a_bug_hard_to_find() -> None:
    easy = {"lines": 0, "sites": 0, "failing": 4, "fix_lines": 1}
    hard = {"lines": 60, "sites": 40, "failing": 1, "fix_lines": 5}
    assert difficulty(**easy) == 0.0
    assert difficulty(**hard) == 1.0
    for name, value in hard.items():
        assert difficulty(**{**easy, name: value}) == 0.25


def test_hand_written_tasks_are_a_source_of_their_own() -> None:
    tasks = every(HANDMADE)
    assert sorted(task.name for task in tasks) == ["keepsake", "runorder", "tabsplit"]
    assert SweTasks(HANDMADE).splits == ("train", "held_out")
    for task in tasks:
        assert not {content for _, content in task.hidden} & {content for _, content in task.repo}
        assert len(task.solution) > 1
        assert not [action for action in task.solution if isinstance(parse_call(action), Malformed)]


def test_what_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownName, match="no swe task 'tabsplit' of source factory"):
        load_task(PARAMS, "tabsplit")
    with pytest.raises(InvalidArgument, match="numbered from 0"):
        SweTasks(PARAMS).get("train", 100_000)
    with pytest.raises(UnknownName):
        SweTasks(HANDMADE).count("held_out_family")
    with pytest.raises(InvalidArgument, match="no QuixBugs checkout"):
        SweTasks(SweParams(source="quixbugs", path="/nonexistent")).count("train")


def test_the_oracle_plays_the_solution_and_submits() -> None:
    task = make_tasks(PARAMS).get("held_out", 0)
    oracle = ENV.oracle(PARAMS, task)
    played = [oracle("") for _ in range(len(load_task(PARAMS, task.payload).solution) + 2)]
    assert played == [*load_task(PARAMS, task.payload).solution, "submit", "submit"]


def test_importing_the_plugin_reads_no_task_and_loads_no_test_tool() -> None:
    code = (
        "import sys; from sandboxes.swe import ENV; from sandboxes.swe.factory import read_index;"
        "assert read_index.cache_info().currsize == 0; assert 'pytest' not in sys.modules; print(ENV.key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "swe@1.0\n"


def test_a_visible_and_a_hidden_test_of_a_package_have_different_names() -> None:
    """An agent that copies a visible test's expectation gains nothing by it."""
    for name, package in itertools.islice(INDEX.packages.items(), 10):
        visible = {path.read_text() for path in (PACKAGES / name / "tests").glob("test_*.py")}
        hidden = {path.read_text() for path in (PACKAGES / name / "hidden").glob("test_*.py")}
        assert not visible & hidden
        assert len(package.hidden) >= 3
