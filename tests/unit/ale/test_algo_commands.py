"""`ale algo list` and `ale algo show`, over every algorithm that is installed."""

import inspect
import json

import pytest

from ale.algo.algorithms import list_command, show_command
from rock_env import plugins
from rock_env.errors import InvalidArgument, UnknownName
from trainer.algo.base import AlgorithmSpec

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
        assert spec_of(name).summary in line


def test_programs_read_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    list_command(as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert listed == [{"name": name, "summary": spec_of(name).summary} for name in NAMES]


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


def test_an_unknown_algorithm_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'ipa'\? Known: .*grpo"):
        show_command("ippa")


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
