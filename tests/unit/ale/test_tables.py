"""Tables fit the terminal, and are whole with `--wide`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from agent_runtime.store import read_segment, write_segment
from agent_runtime.types import RolloutFailure
from ale.cli import app
from ale.terminal import FITTED, _fitted, print_table
from ale.training import rollouts

RUN = Path(__file__).parents[1] / "kept" / "run"
LONG = RolloutFailure(
    "unavailable", "the server is away, for a reason that takes many words to tell. " * 12, 0
)


@pytest.fixture
def fitted() -> Iterator[None]:
    token = FITTED.set(True)
    yield
    FITTED.reset(token)


def printed(*words: str, columns: int = 80) -> list[str]:
    done = CliRunner().invoke(app, [*words], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("columns", [80, 60, 40])
@pytest.mark.parametrize(
    "words", [("env", "list"), ("algo", "list"), ("agent", "list"), ("replay", "list"), ("replay", "stats")]
)
def test_no_line_of_a_table_is_wider_than_the_terminal(words: tuple[str, ...], columns: int) -> None:
    given = [str(RUN)] if words[0] == "replay" else []
    lines = printed(*words, *given, columns=columns)
    table = lines[: next((n for n, line in enumerate(lines) if not line), len(lines))]
    assert len(table) > 2
    assert max(map(len, table)) <= max(columns, len(table[-1]) if "--wide" in table[-1] else 0)
    if columns == 80:
        assert max(map(len, table)) <= 80
    wide = printed(*words, *given, "--wide", columns=columns)
    assert not any("…" in line or "--wide" in line for line in wide)


def test_a_long_id_keeps_its_ends_and_what_matters_least_is_left_out(tmp_path: Path) -> None:
    plain = next(iter(read_segment(RUN / "trajectories" / "expert.traj")))
    name = f"begins-{'x' * 90}-ends"
    write_segment(tmp_path / "trajectories" / "step-000001.rollouts", [replace(plain, id=name)])
    heads, row, note, *_ = printed("replay", "list", str(tmp_path))
    assert heads.split()[:2] == ["id", "task"]
    assert heads.split()[-1] == "end"
    assert row.startswith("begins-")
    assert row.split()[0].endswith("-ends")
    assert note.startswith("(--wide shows everything, also: file")
    assert printed("replay", "list", str(tmp_path), "--wide")[1].split()[0] == name
    assert json.loads(printed("replay", "list", str(tmp_path), "--json")[0])["id"] == name


@pytest.mark.usefixtures("fitted")
def test_the_line_of_a_failed_rollout_fits(capsys: pytest.CaptureFixture[str]) -> None:
    failed = next(iter(read_segment(RUN / "trajectories" / "expert.traj"))).as_failed(LONG)
    cells = rollouts._row(failed)
    assert sum(map(len, cells)) > 700
    print_table(("id", "task", "turns", "reward", "end"), [cells])
    _, row, note = capsys.readouterr().out.splitlines()
    assert len(row.rstrip()) <= 80
    assert "errored: unavailable: the server is" in row
    assert note == "(--wide shows everything)"


def test_a_command_leaves_the_next_table_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    printed("env", "list")
    print_table(("a",), [("x" * 200,)])
    assert "x" * 200 in capsys.readouterr().out


@given(
    st.integers(1, 90),
    st.lists(st.lists(st.text("ab 漢\n\x1b[31m", max_size=60), min_size=3, max_size=3), max_size=4),
)
def test_any_cells_fit_any_terminal(columns: int, rows: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        heads, cells, _ = _fitted(("one", "two", "three"), rows, ("two",))
    for line in [heads, *cells]:
        assert not any("\n" in cell for cell in line)
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    assert sum(widths) + 2 * (len(widths) - 1) <= max(columns, 3 * len(widths) - 2)
