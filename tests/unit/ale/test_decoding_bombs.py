"""A file of a stranger takes as much memory as the budget says, and the commands say in one line what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import bombs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.errors import CorruptTrajectory, TooLarge
from agent_runtime.store import TrajectoryReader
from ale.config import read_toml
from ale.errors import RecordError
from ale.replay.interchange.exchanging import read_foreign
from ale.replay.interchange.packing import unpack_command
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer.errors import ConfigError

BUDGET_MIB = 16
ROOM = 8
"""How many budgets of address space a command may take beyond what it has when it starts."""
CHILD = """
import contextlib, io, json, resource, sys
from pathlib import Path
from ale import cli
import agent_runtime.store, ale.replay.listing, ale.replay.interchange.packing, ale.replay.interchange.exchanging
asked, room, good = json.loads(sys.stdin.read())
results = {}
def run(words):
    out, said = io.StringIO(), io.StringIO()
    sys.argv = ["ale", "replay", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    return code, out.getvalue(), said.getvalue()
assert run(["list", good])[0] == 0
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + room, taken + room))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, words in asked.items():
    results[name] = run(words)
print(json.dumps([results, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


def run_all(folder: Path, asked: dict[str, list[str]]) -> tuple[dict[str, tuple[int, str, str]], int]:
    """Run commands in a process with a bound of memory; return (code, output, errors) of each, and what it grew by (KiB)."""
    good = str(bombs.a_good_one(folder))
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([asked, ROOM * BUDGET_MIB << 20, good]),
        env={**os.environ, budget.VARIABLE: str(BUDGET_MIB), "COLUMNS": "400"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results, grown = json.loads(done.stdout)
    return results, grown


def test_every_bomb_is_refused_in_one_line_within_the_budget(tmp_path: Path) -> None:
    asked = bombs.written(tmp_path)
    results, grown = run_all(tmp_path, asked)
    wrong = {
        name: (code, said[-300:])
        for name, (code, _, said) in results.items()
        if code not in (2, 65) or said.count("\n") != 1 or not said.startswith("ale: ")
    }
    assert wrong == {}
    assert len(results) == len(asked) > 35
    assert grown < ROOM * BUDGET_MIB << 10
    for name, (_, out, _said) in results.items():
        if name.startswith("record"):
            assert "1 rollout" in out or "1 trajector" in out, f"{name}: the intact record behind it: {out}"
    for name in (
        "strings",
        "texts",
        "wide",
        "dictionaries",
        "lists",
        "integers",
        "extensions",
        "bytes",
        "gibibyte",
    ):
        said = results[f"record {name}"][2]
        assert f"the record at byte 16 of {tmp_path / name}.rollouts takes" in said
        assert f"the budget is {BUDGET_MIB << 20}" in said
        assert budget.VARIABLE in said
    assert not (tmp_path / "unpacked").exists()
    assert not (tmp_path / "imported").exists()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        ".index"
    }  # rows of the file that is whole


def test_a_budget_that_is_raised_lets_a_large_record_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bombs.log_of([bombs.packed(bombs.record_with("internal_turns", bombs.many(1 << 18, b"\x00")))])
    (tmp_path / "a.rollouts").write_bytes(content)
    monkeypatch.setenv(budget.VARIABLE, "16")
    with pytest.raises(TooLarge, match="budget is 16777216"):
        list(TrajectoryReader(tmp_path / "a.rollouts"))
    monkeypatch.setenv(budget.VARIABLE, "64")
    assert len(list(TrajectoryReader(tmp_path / "a.rollouts"))) == 1
    for bad in ("0", "-1", "1e3", "many", "9" * 40):
        monkeypatch.setenv(budget.VARIABLE, bad)
        with pytest.raises(InvalidArgument, match="expected a number of MiB"):
            budget.most_bytes()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def elements(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(elements, value))
    if isinstance(value, dict):
        return 1 + sum(1 + elements(each) for each in value.values())
    return 1


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_no_element_is_left_out_of_the_count(value: object) -> None:
    """What is counted is never less than what the decoder makes, so a budget cannot be passed by another form."""
    content = msgspec.msgpack.encode(value)
    assert budget._cost_of_msgpack(content, 1 << 60) >= 128 * elements(value)
    for text in filter(lambda each: each.isascii(), [msgspec.json.encode(_plain(value))]):
        found = budget._JSON.findall(text)
        assert 1 + len(found) >= elements(_plain(value))


def _plain(value: object) -> object:
    """Return the value as JSON has it."""
    if isinstance(value, bytes | float):
        return str(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 50_000, "nested too deeply"),
        (".".join(["a"] * 200) + " = 1", "nested too deeply"),
        ("#" * (2 << 20), "too long for settings"),
    ],
    ids=["lists", "tables", "long"],
)
def test_settings_have_bounds(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_toml(tmp_path / "config.toml")


@given(content=st.binary(max_size=400), name=st.sampled_from(["x.jsonl", "x.traj", "x.json"]))
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    folder = tmp_path_factory.mktemp("random")
    (folder / name).write_bytes(content)
    with suppress(RecordError):
        list(read_foreign(folder / name))
    (folder / "x.rollouts").write_bytes(bombs.log_of([content, bombs.packed(content)]))
    problems: list[CorruptTrajectory] = []
    assert list(TrajectoryReader(folder / "x.rollouts", damaged=problems)) == []
    assert len(problems) >= 1


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_tar_is_a_pack_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("tar")
    content = bytearray(bombs.random_tar(data.draw(st.binary(max_size=600))))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, 1100)) % len(content)] = data.draw(st.integers(0, 255))
    (folder / "x.tar").write_bytes(content)
    with pytest.raises(RecordError, match=r"x\.tar|pack"):
        unpack_command(folder / "x.tar", folder / "out")
    assert [path.name for path in folder.iterdir()] == ["x.tar"]
