"""`ale algo list` and `ale algo show`, over every algorithm that is installed."""

import inspect
import json
from pathlib import Path

import pytest

from ale import api
from ale.algo.algorithms import list_command, show_command
from ale.config import resolve
from ale.training.training import TrainCommand, train_command
from rock_env import plugins
from rock_env.errors import InvalidArgument, UnknownName
from trainer.algo.base import AlgorithmSpec
from trainer.errors import ConfigError

NAMES = plugins.names("ale.algorithms")


def spec_of(name: str) -> AlgorithmSpec:
    spec = plugins.load("ale.algorithms", name)
    assert isinstance(spec, AlgorithmSpec)
    return spec


def test_all_algorithms_are_listed_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    list_command()
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(NAMES)
    for name, line in zip(NAMES, lines, strict=True):
        assert spec_of(name).summary in " ".join(line.split())


def test_programs_read_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    list_command(as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["summary"]) for each in listed] == [
        (name, spec_of(name).summary) for name in NAMES
    ]
    lags = {each["name"]: each["largest_lag"] for each in listed}
    assert {name: lags[name] for name in ("ipa", "grpo", "topr", "reinforce", "rloo", "bc")} == {
        **dict.fromkeys(("ipa", "grpo", "topr"), "any"),
        **dict.fromkeys(("reinforce", "rloo"), 0),
        "bc": None,
    }


def test_the_list_says_what_lag_each_correction_bears_and_what_lets_it_bear_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_command()
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["ipa"].split()[1] == "any"
    assert "0, more with correction" in rows["reinforce"]
    assert rows["bc"].split()[1] == "-"


BEHIND = ["rollout.mode=pipeline", "rollout.staleness=2"]


def trying(algo: str, *settings: str) -> TrainCommand:
    """Return `ale train --dry-run` of an algorithm, two versions behind."""
    named = {"env": "frozen_lake", "algo": algo}
    return TrainCommand(named, [*BEHIND, *settings], None, None, False, None, True, True)


PAPER = ["algo_options.behaviour=paper", "algo_options.snapshots_kept=2"]


@pytest.mark.parametrize(
    ("algo", "settings", "said"),
    [
        (
            "reinforce",
            [],
            "at most 0. Set algo_options.correction to bear more, rollout.staleness=0, or rollout.allow_unc",
        ),
        (
            "decoupled_ppo",
            ["algo_options.correction=none"],
            "than algo 'decoupled_ppo' corrects for: expected at most 0",
        ),
        ("ipa", PAPER, "expected at most 1. Set algo_options.snapshots_kept to bear more"),
        (
            "undeclared",
            [],
            r"at most 0. Set rollout.staleness=0, or .*your own declares AlgorithmSpec.off_policy",
        ),
        ("bc", ["anchors.scheduler=none", "anchors.inject=0"], "no effect with algo 'bc'"),
    ],
)
def test_a_lag_beyond_the_correction_is_refused_before_anything_starts(
    algo: str, settings: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    undeclared = AlgorithmSpec("undeclared", "", spec_of("grpo").options, spec_of("grpo").build)
    with (
        plugins.given({("ale.algorithms", "undeclared"): undeclared}),
        pytest.raises(ConfigError, match=said),
    ):
        train_command(trying(algo, *settings))
    assert not capsys.readouterr().out


def test_a_run_is_refused_before_it_has_a_folder(tmp_path: Path) -> None:
    config = resolve(options={"env": "frozen_lake", "algo": "rloo"}, overrides=BEHIND).config
    with pytest.raises(ConfigError, match="algo 'rloo' corrects for: expected at most 0"):
        api.train(config, run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("grpo", []),
        ("reinforce", ["algo_options.correction=tis_token"]),
        ("reinforce", ["rollout.allow_uncorrected_lag=true"]),
        ("ipa", ["algo_options.behaviour=paper", "algo_options.snapshots_kept=3"]),
    ],
)
def test_a_lag_that_is_corrected_or_asked_for_is_taken(
    algo: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_command(trying(algo, *settings)) == 0
    assert "staleness = 2" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_shows_its_equations_and_every_option(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_command(name)
    shown = capsys.readouterr().out
    assert shown.startswith(f"{name}: {spec_of(name).summary}\n")
    equations = inspect.getdoc(inspect.getmodule(spec_of(name).build))
    assert equations
    assert equations in shown
    for option, field in spec_of(name).options.model_fields.items():
        line = next(line for line in reversed(shown.splitlines()) if line.split()[:1] == [option])
        assert " ".join((field.description or "").split()) in line
        assert str(field.default).lower() in line.lower()


@pytest.mark.parametrize(("typed", "meant"), [("ippa", "ipa"), ("gpro", "grpo"), ("gsop", "gspo")])
def test_an_unknown_algorithm_names_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=rf"Did you mean '{meant}'\? Known: .*grpo"):
        show_command(typed)


def test_a_plugin_that_is_no_algorithm_says_what_it_is(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # type: ignore[no-untyped-def]
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ale.algorithms]\nother = json:dumps\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._group.cache_clear()
    try:
        with pytest.raises(InvalidArgument, match="not an AlgorithmSpec: got function"):
            show_command("other")
        list_command()
        assert "broken plugin" in capsys.readouterr().out
    finally:
        plugins._group.cache_clear()
