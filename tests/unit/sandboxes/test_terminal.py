"""The terminal environment without a box: the catalogue, the drawing of tasks, and what is judged of what is seen."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rock_env.errors import InvalidArgument, UnknownName
from rock_env.tools import Bash, Edit, Malformed, Submit, parse_call
from sandboxes.frozen_lake.params import FrozenLakeParams
from sandboxes.terminal import checks, probe
from sandboxes.terminal.catalog import TEMPLATES, VARIANTS, TerminalTasks, scenario
from sandboxes.terminal.env import TerminalEnv
from sandboxes.terminal.grade import judge
from sandboxes.terminal.params import TerminalParams, narrow
from sandboxes.terminal.scenario import Scenario
from sandboxes.terminal.words import Draw, Kind

ALL = TerminalTasks(TerminalParams())
KINDS: tuple[Kind, ...] = ("person", "service", "thing", "place", "word")
FAMILIES = ("files", "archives", "processes", "git", "data")
FIRST = {name: scenario(f"{name}/0") for name in TEMPLATES}


def content(drawn: Scenario) -> tuple[Any, ...]:
    """Return what makes a task, its answer left aside."""
    return drawn.goal, tuple(drawn.files.items()), drawn.setup, drawn.services


def test_every_family_has_tasks_of_both_splits() -> None:
    count = Counter((template.family, template.split) for template in TEMPLATES.values())
    assert {family for family, _ in count} == set(FAMILIES)
    for family in FAMILIES:
        assert count[family, "train"] >= 7
        assert count[family, "held_out"] >= 2
    assert len(TEMPLATES) >= 45


def test_a_split_shows_each_of_its_templates_before_one_returns() -> None:
    for split in ("train", "held_out"):
        names = [name for name, template in TEMPLATES.items() if template.split == split]
        first = [ALL.get(split, index).payload for index in range(len(names))]
        assert first == [f"{name}/0" for name in names]
        assert ALL.get(split, len(names)).payload == f"{names[0]}/1"
        assert ALL.count(split) == len(names) * VARIANTS[split]


def test_a_family_can_be_chosen() -> None:
    only = TerminalTasks(TerminalParams(family="git"))
    payloads = {only.get("train", index).payload.partition("/")[0] for index in range(only.count("train"))}
    assert payloads == {n for n, t in TEMPLATES.items() if (t.family, t.split) == ("git", "train")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_splits_share_no_name(kind: Kind) -> None:
    def drawn(split: str) -> set[str]:
        names = Draw("x", 0, split=split)._left[kind]
        assert len(set(names)) == len(names) >= 12
        return set(names)

    assert not drawn("train") & drawn("held_out")
    once = Draw("x", 0, split="train").names(kind, 5)
    assert once == Draw("x", 0, split="train").names(kind, 5) != Draw("x", 1, split="train").names(kind, 5)


def test_no_task_occurs_twice_and_equal_draws_are_equal() -> None:
    seen: dict[tuple[Any, ...], str] = {}
    for split in ("train", "held_out"):
        for index in range(ALL.count(split)):
            task = ALL.get(split, index)
            drawn = scenario(task.payload)
            assert seen.setdefault(content(drawn), task.id) == task.id
    for name, drawn in FIRST.items():
        template = TEMPLATES[name]
        again = template.draw(Draw(name, 0, split=template.split))
        assert content(again) == content(drawn)
        assert (again.solution, again.shortcuts) == (drawn.solution, drawn.shortcuts)


def test_a_task_is_the_same_in_every_process() -> None:
    code = (
        "import hashlib; from sandboxes.terminal.catalog import TEMPLATES, scenario;"
        "drawn = [scenario(f'{name}/1') for name in TEMPLATES];"
        "told = repr([(d.goal, d.files, d.setup, d.services, d.solution) for d in drawn]);"
        "print(hashlib.sha256(told.encode()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_whole(name: str) -> None:
    drawn = FIRST[name]
    assert "\n" not in drawn.goal
    assert drawn.goal.endswith(".")
    assert len({check.name for check in drawn.checks}) == len(drawn.checks)
    assert any(not check.guard for check in drawn.checks)
    assert len(drawn.shortcuts) >= 2
    for action in (*drawn.solution, *drawn.shortcuts):
        assert not isinstance(parse_call(action), Malformed | Submit), action
        assert action.startswith(("bash ", "edit "))


def test_solutions_take_turns_and_use_the_tools() -> None:
    calls = [[parse_call(action) for action in drawn.solution] for drawn in FIRST.values()]
    assert all(len(turns) >= 2 for turns in calls)
    assert sum(any(isinstance(call, Edit) for call in turns) for turns in calls) >= 8
    assert any(isinstance(call, Bash) for turns in calls for call in turns)


@pytest.mark.parametrize("name", [name for name, drawn in FIRST.items() if drawn.services])
def test_what_only_a_process_knows_is_nowhere_in_the_files(name: str) -> None:
    drawn = FIRST[name]
    told = drawn.goal.encode() + drawn.setup.encode() + b"".join(drawn.files.values())
    for service in drawn.services:
        assert len(service.secret) >= 12
        secrets = json.loads(service.secret).values() if service.secret.startswith("{") else [service.secret]
        assert not any(secret.encode() in told for secret in secrets)


def test_what_is_asked_for_wrongly_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="squash"):
        scenario("squish/0")
    with pytest.raises(InvalidArgument, match="TerminalParams"):
        narrow(FrozenLakeParams())
    with pytest.raises(InvalidArgument, match="not a terminal snapshot"):
        TerminalEnv(TerminalParams()).restore(b"\xc1?")


def test_importing_the_plugin_draws_no_task() -> None:
    code = (
        "import sys; from sandboxes.terminal import ENV; from sandboxes.terminal.catalog import scenario;"
        "assert scenario.cache_info().currsize == 0; print(ENV.key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "terminal@0.1\n"


# -- the probe and the judgement


def look(folder: Path, *wanted: checks.Check) -> list[Any]:
    """Ask the probe as `grade` does."""
    asked = {"folder": str(folder), "looks": [dict(check.look) for check in wanted]}
    done = subprocess.run(
        [sys.executable, "-I", "-c", Path(probe.__file__).read_text()],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert isinstance(seen, list)
    return seen


def problems(folder: Path, *wanted: checks.Check) -> list[str]:
    return [check.judge(seen) for check, seen in zip(wanted, look(folder, *wanted), strict=True)]


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Return a folder as an agent may leave it."""
    sub = tmp_path / "sub"
    sub.mkdir()
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.json").write_text('{"x": [1, 2.5, true]}')
    (sub / "c.txt").write_bytes(b"\xff\0")
    (sub / "c.txt").chmod(0o640)
    (tmp_path / "link").symlink_to("sub/c.txt")
    (tmp_path / "cycle").symlink_to("cycle")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "in").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "a.txt", "./x/a.txt")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("x/", "")
        archive.writestr("x/a.txt", b"one\ntwo\n")
    (tmp_path / "g.gz").write_bytes(gzip.compress(b"one\n"))
    (tmp_path / "broken.tar.gz").write_bytes((tmp_path / "t.tar.gz").read_bytes()[:40])
    return tmp_path


TWO = {"x/a.txt": b"one\ntwo\n"}


def test_what_is_right_is_seen(left: Path) -> None:
    right = [
        checks.text_is("a.txt", "one\ntwo"),
        checks.text_is("a.txt", "one", "one\ntwo\n"),
        checks.text_is("in", "one\ntwo"),
        checks.json_is("b.json", {"x": [1, 2.5, True]}),
        checks.absent("nothing"),
        checks.tree_is("sub", {"c.txt": b"\xff\0"}),
        checks.keeps({"a.txt": b"one\ntwo\n", "sub/c.txt": b"\xff\0"}),
        checks.modes_are("sub", {"c.txt": 0o640}),
        checks.names_are("sub", ["c.txt"]),
        checks.archive_holds("t.tar.gz", "tar.gz", TWO),
        checks.archive_holds("z.zip", "zip", TWO),
        checks.archive_holds("g.gz", "gz", {"": b"one\n"}),
        checks.prints("cat", ["cat", "a.txt"], "one\ntwo\n"),
        checks.prints("false", ["false"], "", status=1),
    ]
    assert problems(left, *right) == [""] * len(right)


def test_what_is_wrong_is_told(left: Path) -> None:
    wrong = {
        "there is no such file": checks.text_is("nothing", ""),
        "it is a link, not a file": checks.text_is("out", "one\ntwo"),
        "it is a special file, not a file": checks.text_is("pipe", ""),
        "it is a folder, not a file": checks.json_is("sub", {}),
        "line 2 is wrong (2 lines, expected 2)": checks.text_is("a.txt", "one\nthree"),
        "line 3 is wrong (2 lines, expected 3)": checks.text_is("a.txt", "one\ntwo\nthree"),
        "its value is wrong": checks.json_is("b.json", {"x": [1, 2.5, 1]}),
        "it is there": checks.absent("cycle"),
        "not wanted: c.txt": checks.tree_is("sub", {}),
        "there is no such folder": checks.tree_is("link", {}),
        "wrong content: c.txt": checks.tree_is("sub", {"c.txt": b"\xff"}),
        "missing: d.txt": checks.keeps({"d.txt": b""}, "sub"),
        "c.txt has 640": checks.modes_are("sub", {"c.txt": 0o600}),
        "missing: e.txt": checks.names_are("sub", ["c.txt", "e.txt"]),
        "there is no readable archive": checks.archive_holds("broken.tar.gz", "tar.gz", {}),
        "its format is zip": checks.archive_holds("z.zip", "tar.gz", TWO),
        "wrong content: x/a.txt": checks.archive_holds("t.tar.gz", "tar.gz", {"x/a.txt": b"one\n"}),
        "it did not end": checks.prints("nothing", ["./nothing"], ""),
        "it exited with 1": checks.prints("false", ["false"], ""),
        "its output is wrong": checks.prints("cat", ["cat", "a.txt"], "one"),
    }
    assert problems(left, *wrong.values()) == list(wrong)
    assert "not JSON" in problems(left, checks.json_is("a.txt", {}))[0]


def test_without_its_folder_nothing_is_there(tmp_path: Path) -> None:
    assert look(tmp_path / "gone", checks.absent("a"), checks.names_are(".", [])) == [None, None]


def test_commands_run_after_the_files_were_read(left: Path) -> None:
    both = (checks.prints("change", ["sh", "-c", "echo x > a.txt"], ""), checks.text_is("a.txt", "one\ntwo"))
    assert problems(left, *both) == ["", ""]
    assert (left / "a.txt").read_text() == "x\n"


def test_a_command_that_hangs_ends_with_its_children() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        probe.look_by_running(["sh", "-c", "sleep 600 & sleep 600"], ".", 0.2)
    late = {"kind": "run", "path": ".", "argv": ["sleep", "600"]}
    assert probe.look(late, 0.0) is None


def test_partial_credit_needs_every_guard() -> None:
    wanted = [checks.absent("a"), checks.absent("b"), checks.absent("c"), checks.absent("d", guard=True)]
    there = {"type": "file", "text": "", "mode": 0o644, "target": ""}

    def reward(seen: list[Any], *, partial: bool) -> float:
        verdict = judge(wanted, seen, partial=partial)
        assert verdict.passed == (verdict.reward == 1.0)
        return verdict.reward

    assert reward([None] * 4, partial=False) == reward([None] * 4, partial=True) == 1.0
    assert reward([there, None, None, None], partial=False) == 0.0
    assert reward([there, None, None, None], partial=True) == pytest.approx(2 / 3)
    assert reward([there, None, None, there], partial=True) == 0.0
    assert (
        judge(wanted, [there, None, None, None], partial=False).details
        == "3 of 4 checks passed; not: no a: it is there"
    )
