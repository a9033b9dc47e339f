"""`ale compare`: rows, groups of seeds, settings that differ, JSON, the picture, and what is no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ale.cli import EXIT_SOFTWARE, app, explained
from ale.errors import RecordError
from ale.training.comparing import HEADS, alike
from ale.training.reading import read_run
from rock_env.errors import InvalidArgument
from trainer.errors import RunFolderError

SETTINGS = 'env = "lake"\nalgo = "{algo}"\nseed = {seed}\nsteps = {steps}\n[optim]\nlr = 0.001\n'


def run(
    folder: Path, successes: list[float], *, seed: int = 0, algo: str = "ipa", steps: int = 20, more: str = ""
) -> str:
    """A run that was evaluated every tenth step."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(SETTINGS.format(algo=algo, seed=seed, steps=steps) + more)
    records: list[dict[str, Any]] = [{"step": -1, "kind": "warmup", "loss": 1.0}]
    for number, success in enumerate(successes):
        step, told = 10 * number, {"env_steps": 1000.0 * number, "train_s": 5.0 + 60 * number}
        records += [{"step": step, "kind": "train", **told}] if step else []
        ends = {"success_low": success - 0.05, "success_high": success + 0.05}
        records.append({"step": step, "kind": "eval", "success": success, **ends, **told})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    return str(folder)


def told(*words: str, columns: int = 80) -> str:
    done = CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": str(columns)})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_seeds_are_one_row_and_what_differs_is_told(tmp_path: Path) -> None:
    words = [run(tmp_path / f"a-seed{seed}", [0.1, 0.3, 0.6 + seed / 10], seed=seed) for seed in (2, 0)]
    words.append(run(tmp_path / "b", [0.1, 0.4], algo="grpo", steps=30, more="[algo_options]\nclip = 0.2\n"))
    heads, first, second, _, note, _, title, *settings = told(*words, columns=120).splitlines()
    assert heads.split() == [*HEADS[:6], "env", "steps", "time"]
    assert first.split() == [
        "a-seed*",
        "0,",
        "2",
        "0.100",
        "0.700",
        "0.600",
        "to",
        "0.800",
        "20",
        "2,000",
        "2:05",
    ]
    assert second.split() == [
        "b",
        "0",
        "0.100",
        "0.400",
        "[0.350,",
        "0.450]",
        "10",
        "of",
        "30",
        "1,000",
        "1:05",
    ]
    assert "the mean" in note
    assert title == "settings that differ"
    assert [line.split() for line in settings] == [
        ["setting", "a-seed*", "b"],
        ["algo", "ipa", "grpo"],
        ["steps", "20", "30"],
        ["algo_options.clip", "-", "0.2"],
    ]


def test_one_run_has_its_interval_and_no_settings(tmp_path: Path) -> None:
    lines = told(run(tmp_path / "a", [0.1, 0.5]), columns=120).splitlines()
    assert len(lines) == 2
    assert "[0.450, 0.550]" in lines[1]


def test_a_run_that_was_not_measured_yet_has_no_numbers(tmp_path: Path) -> None:
    words = [run(tmp_path / "a", [0.1, 0.5]), run(tmp_path / "b", [], seed=1)]
    (tmp_path / "b" / "metrics.jsonl").unlink()
    (row,) = json.loads(told(*words, "--json"))["groups"]
    assert row["after"] == {"mean": None, "lowest": None, "highest": None}
    assert [each["curve"][-1:] for each in row["runs"]][1] == []
    row_told = told(*words, columns=120).splitlines()[1].split()
    assert row_told == ["a,", "b", "0,", "1", "-", "-", "-", "0", "to", "10", "of", "20", "-", "-"]


def test_programs_get_every_number(tmp_path: Path) -> None:
    words = [run(tmp_path / "a", [0.1, 0.5]), run(tmp_path / "b", [0.2, 0.9], algo="grpo")]
    first, second = json.loads(told(*words, "--json"))["groups"]
    assert (first["settings"], second["settings"]) == ({"algo": "ipa"}, {"algo": "grpo"})
    assert second["after"] == {"mean": 0.9, "lowest": 0.9, "highest": 0.9}
    (only,) = first["runs"]
    assert (only["steps"], only["env_steps"], only["train_s"]) == (10, 1000, 65)
    assert [(each["step"], each["success"]) for each in only["curve"]] == [(0, 0.1), (10, 0.5)]


def test_names_tell_runs_and_groups_apart(tmp_path: Path) -> None:
    same = [run(tmp_path / place / "a", [0.1], algo=algo) for place, algo in (("x", "ipa"), ("y", "grpo"))]
    assert [group.name for group in alike([read_run(Path(each)) for each in same])] == same
    four = [run(tmp_path / f"r{n}", [0.1], seed=n, algo=("ipa", "grpo")[n % 2]) for n in range(4)]
    assert [group.name for group in alike([read_run(Path(each)) for each in four])] == ["r0, r2", "r1, r3"]
    twice = json.loads(told(same[0], same[0], "--json"))["groups"]
    assert len(twice[0]["runs"]) == 1


def test_the_table_fits_a_terminal(tmp_path: Path) -> None:
    words = [run(tmp_path / f"{'long' * 20}-{algo}", [0.1, 0.5], algo=algo) for algo in ("ipa", "grpo")]
    lines = told(*words).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("--wide" in line for line in lines)
    assert "long" * 20 in told(*words, "--wide")


def test_it_draws_a_picture(tmp_path: Path) -> None:
    names = [run(tmp_path / f"_$a{seed}", [0.1, 0.5], seed=seed) for seed in range(2)]
    picture = tmp_path / "curves.png"
    told(*names, run(tmp_path / "b", [0.1, 0.7, 0.8], algo="grpo"), "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 5000
    alone = tmp_path / "alone.png"
    told(*names, "--plot", str(alone))
    assert alone.read_bytes() != picture.read_bytes()


def refused(error: type[Exception], *words: str) -> str:
    with pytest.raises(error) as caught:
        told(*words)
    message, code = explained(caught.value)
    assert code != EXIT_SOFTWARE
    return message


def test_what_cannot_be_compared_is_refused_in_a_line(tmp_path: Path) -> None:
    good = run(tmp_path / "good", [])
    assert "no run in" in refused(RunFolderError, good, str(tmp_path / "absent"))
    assert "nothing to draw" in refused(RecordError, good, "--plot", str(tmp_path / "x.png"))
    run(tmp_path / "drawn", [0.1])
    assert "cannot write" in refused(
        RecordError, str(tmp_path / "drawn"), "--plot", str(tmp_path / "no" / "x.png")
    )
    (tmp_path / "good" / "metrics.jsonl").write_text('[1]\n{"step": 1}\n')
    assert "line 1 is no record" in refused(RecordError, good)
    (tmp_path / "good" / "config.toml").write_text('seed = "one"\n')
    assert "seed = 'one'" in refused(RecordError, good)
    (tmp_path / "good" / "config.toml").write_text("seed = \n")
    assert "not valid TOML" in refused(InvalidArgument, good)
