from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from ale import config
from benchmarks import ipa
from benchmarks.ipa_report import STALENESS, decide, draw, page, primary, summarise
from trainer.algo.ipa_options import IPAOptions


def line(method: str, seed: int, curve: list[list[float]], **more: Any) -> dict[str, Any]:
    return {
        "env": "e",
        "method": method,
        "seed": seed,
        "arguments": [],
        "commit": "abc",
        "curve": curve,
        "apart": {},
    } | more


def failed(method: str, seed: int) -> dict[str, Any]:
    return {"env": "e", "method": method, "seed": seed, "arguments": [], "commit": "abc", "error": "x"}


def test_every_algorithm_has_its_arm_with_and_without_the_same_resets() -> None:
    for name in (*ipa.ALGORITHMS, "ipa-gamma0.7", "bc-grpo", "bc-ipa"):
        plain, resets = ipa.METHODS[name], ipa.METHODS[f"{name}+resets"]
        assert plain[: -len(ipa.NO_RESETS)] == resets[: -len(ipa.RESETS)]
        assert plain[-len(ipa.NO_RESETS) :] == ipa.NO_RESETS
        assert resets[-len(ipa.RESETS) :] == ipa.RESETS
    assert set(ipa.CORE) <= set(ipa.METHODS)
    assert len(set(ipa.CORE)) == len(ipa.CORE) == 13 + len(ipa.STALE) * len(STALENESS)


def test_a_stale_arm_differs_from_its_fresh_one_by_the_staleness_alone() -> None:
    for name in ipa.STALE:
        for lag in (4, 8):
            assert ipa.METHODS[f"{name}@{lag}"] == [*ipa.METHODS[name], "-s", f"rollout.staleness={lag}"]
            assert f"{name}@{lag}" in ipa.CORE


def test_the_primary_number_is_read_at_the_budget() -> None:
    assert primary(line("ipa", 1, [[0, 0.0], [200, 0.8]]), 100) == (pytest.approx(0.4), True)
    assert primary(line("ipa", 1, [[0, 0.0], [80, 0.6]]), 100) == (0.6, False)
    assert primary(line("bc", 1, [[0, 0.2], [0, 0.5]]), 100) == (0.5, True)


def test_a_failed_run_is_counted_and_is_no_zero() -> None:
    lines = [line("ipa", 1, [[0, 0.5], [100, 0.5]]), failed("ipa", 2)]
    lines.append(failed("bc", 1))
    found = summarise(lines, 100)
    assert found["methods"]["ipa"]["iqm"] == [0.5]  # one run has no interval
    assert found["methods"]["ipa"]["failed"] == 1
    assert found["methods"]["bc"]["iqm"] is None
    assert found["differences"]["ipa - bc"] is None
    assert "| bc |" in page("e", found, 3)
    assert "1 of 3 runs made, at commit `abc`" in page("e", found, 3)


def test_hypotheses_are_decided_by_the_interval_of_five_pairs() -> None:
    up = [0.1, 0.2, 0.3, 0.2, 0.1]
    assert decide([up])[0] == "holds"
    assert decide([[-value for value in up]])[0] == "opposite"
    assert decide([[-0.3, 0.3, -0.2, 0.2, 0.05]])[0] == "undecided"
    assert decide([up[:4]])[0].startswith("not decided")
    assert decide([])[0].startswith("not decided")


def test_differences_pair_seeds_and_the_hypothesis_reads_ipa_with_resets_minus_bc() -> None:
    lines = [line("bc", seed, [[0, 0.1], [0, 0.1 * seed]]) for seed in range(5)]
    lines += [line("ipa+resets", seed, [[0, 0.0], [100, 0.1 * seed + 0.25]]) for seed in range(5)]
    found = summarise(lines, 100)
    assert found["differences"]["ipa+resets - bc"] == [0.25, 0.25, 0.25]
    assert found["hypotheses"]["ipa is above bc on held-out tasks"] == "holds"
    assert found["decided_by"] == {"ipa is above bc on held-out tasks": [0.25, 0.25, 0.25]}
    assert "| holds | 0.2500 [0.2500, 0.2500] |" in page("e", found, 10)
    assert found["hypotheses"]["resets help"].startswith("not decided")


def stale_lines(seeds: int = 5) -> list[dict[str, Any]]:
    """IPA loses 0.1 to 0.2 at staleness 8, GRPO 0.4; each seed has a level of its own."""
    lines = []
    for seed in range(seeds):
        level = 0.6 + 0.05 * seed
        ends = {"ipa+resets": level, "ipa+resets@8": level - 0.1 - 0.02 * seed}
        ends |= {"grpo+resets": level - 0.1, "grpo+resets@8": level - 0.5}
        lines += [line(method, seed, [[0, 0.0], [100, end]]) for method, end in ends.items()]
    return lines


def test_robustness_is_what_ipa_loses_less_than_grpo_paired_by_seed() -> None:
    found = summarise(stale_lines(), 100)
    lost = found["differences"]["(ipa - grpo)+resets, @8 - @0"]
    assert lost == [pytest.approx(0.26), pytest.approx(0.2267, abs=0.02), pytest.approx(0.2933, abs=0.02)]
    assert found["differences"]["grpo+resets@8 - grpo+resets"] == [pytest.approx(-0.4)] * 3
    assert found["hypotheses"]["the chunk loss is robust to staleness"] == "holds"
    assert "(ipa - grpo)+resets, @4 - @0" not in found["differences"]


def test_robustness_is_not_decided_without_five_seeds_of_all_four_methods() -> None:
    few, three = stale_lines(4), [one for one in stale_lines() if one["method"] != "ipa+resets"]
    for lines in (few, three):
        said = summarise(lines, 100)["hypotheses"]["the chunk loss is robust to staleness"]
        assert said.startswith("not decided")


def test_two_jobs_run_side_by_side_and_each_line_is_there_as_its_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, together, told = tmp_path / "raw.jsonl", threading.Barrier(2), threading.Event()
    said = ipa._said

    def measured(env: str, method: str, seed: int, arguments: list[str], *_: object) -> dict[str, Any]:
        if seed < 2:
            together.wait(timeout=30)
        if seed == 0:  # ends after the other was told of
            assert told.wait(timeout=30)
            assert json.loads(raw.read_text().splitlines()[0])["seed"] == 1
        return line(method, seed, [[0, 0.5]], env=env, success_warmup=0.0, success_final=0.5)

    def telling(ended: dict[str, Any]) -> str:
        told.set()
        return said(ended)

    monkeypatch.setattr(ipa, "measure", measured)
    monkeypatch.setattr(ipa, "_said", telling)
    lines = ipa.run_all([("e", "bc", seed, []) for seed in (0, 1, 2)], raw, at_once=2)
    assert [one["seed"] for one in lines] == [0, 1, 2]
    assert len(raw.read_text().splitlines()) == 3


def test_resuming_does_only_what_is_missing_failed_or_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(env: str, method: str, seed: int, arguments: list[str], *_: object) -> dict[str, Any]:
        asked.append(seed)
        return line(
            method, seed, [[0, 0.5]], env=env, arguments=arguments, success_warmup=0.0, success_final=0.5
        )

    monkeypatch.setattr(ipa, "measure", measured)
    raw = tmp_path / "raw.jsonl"
    whole = [json.dumps(one) for one in (line("bc", 1, [[0, 0.9]]), failed("bc", 2))]
    raw.write_text("\n".join(whole) + '\n{"env": "e", "meth')
    work = [("e", "bc", seed, list[str]()) for seed in (1, 2, 3)]
    lines = ipa.run_all(work, raw)
    assert asked == [2, 3]
    assert [one["curve"] for one in lines] == [[[0, 0.9]], [[0, 0.5]], [[0, 0.5]]]
    assert ipa.run_all(work, raw) == lines
    assert len(raw.read_text().splitlines()) == 4
    with pytest.raises(ValueError, match="with arguments"):
        ipa.run_all([("e", "bc", 1, ["--steps", "9"])], raw)


def test_a_report_of_part_of_the_comparison_runs_nothing_and_says_how_much_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw.jsonl"
    words = [
        "benchmarks.ipa",
        "--env",
        "sokoban",
        "--methods",
        "bc",
        "ipa",
        "--seeds",
        "2",
        "--resume",
        str(raw),
    ]
    setting = ipa.SETTINGS["sokoban"]
    arguments = {method: ipa.arguments_of("sokoban", method, setting) for method in ("bc", "ipa")}
    lines = [line(name, 100, [[0, 0.5]], env="sokoban", arguments=arguments[name]) for name in arguments]
    late = failed("bc", 101) | {"env": "sokoban", "arguments": arguments["bc"]}
    before = "".join(json.dumps(one) + "\n" for one in (*lines, late))
    raw.write_text(before)
    monkeypatch.setattr(ipa, "measure", None)
    monkeypatch.setattr("sys.argv", [*words, "--report"])
    ipa.main()
    said = capsys.readouterr().out
    assert "2 of 4 runs made" in said
    assert json.loads(said.splitlines()[-1])["sokoban"]["methods"]["ipa"]["by_seed"] == {"100": 0.5}
    assert json.loads(said.splitlines()[-1])["sokoban"]["methods"]["bc"]["failed"] == 1
    assert "Not run" not in said
    assert raw.read_text() == before
    monkeypatch.setattr("sys.argv", [*words[:-1], str(tmp_path / "none.jsonl"), "--report"])
    with pytest.raises(SystemExit, match="2"):
        ipa.main()
    assert "none.jsonl" in capsys.readouterr().err
    swe = line("bc", 100, [[0, 0.5]], env="swe", arguments=["any"])
    raw.write_text(before + json.dumps(swe) + "\n")
    monkeypatch.setattr("sys.argv", [*words, "--report", "--write"])
    with pytest.raises(SystemExit, match="2"):
        ipa.main()
    assert "name with --env swe, too" in capsys.readouterr().err, "a page of a part would replace the whole"


def test_an_error_of_one_run_costs_no_other_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, broke = threading.Event(), threading.Event()

    def measured(env: str, method: str, seed: int, arguments: list[str], *_: object) -> dict[str, Any]:
        if seed == 1:
            begun.wait(timeout=30)
            broke.set()
            raise FileNotFoundError("summary.json")
        begun.set()
        broke.wait(timeout=30)
        return line(method, seed, [[0, 0.5]], env=env, success_warmup=0.0, success_final=0.5)

    monkeypatch.setattr(ipa, "measure", measured)
    with pytest.raises(FileNotFoundError):
        ipa.run_all([("e", "bc", seed, list[str]()) for seed in (1, 2)], tmp_path / "raw.jsonl", at_once=2)
    assert [one["seed"] for one in ipa.read_raw(tmp_path / "raw.jsonl")] == [2]


def test_what_was_asked_for_and_never_run_is_named() -> None:
    found = summarise([line("bc", 1, [[0, 0.5]])], 10, ["bc", "ipa", "grpo"])
    assert found["not_run"] == ["ipa", "grpo"]
    assert "1 of 3 runs made, at commit `abc`. Not run: ipa, grpo." in page("e", found, 3)


def test_a_run_that_fails_becomes_a_line_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: list[str]) -> dict[str, Any]:
        raise RuntimeError(f"{Path.cwd()}/x exited with 1")

    monkeypatch.setattr(ipa, "run_training", fails)
    found = ipa.measure("e", "bc", 1, [])
    assert found["error"] == "./x exited with 1"
    assert "curve" not in found


@pytest.mark.parametrize("env", sorted(ipa.SETTINGS))
def test_every_arm_is_a_valid_run_with_the_same_recipe_experts_and_imitation(env: str) -> None:
    found = {}
    for method in ipa.METHODS:
        words = ipa.arguments_of(env, method, ipa.SETTINGS[env])
        pairs = list(zip(words[::2], words[1::2], strict=True))
        named = {name[2:]: value for name, value in pairs if name.startswith("--")}
        settings = [value for name, value in pairs if name == "-s"]
        options = {"env": env, "algo": named["algo"], "steps": int(named["steps"]), "seed": 100}
        found[method] = config.resolve(options=options, overrides=settings).config
    for method, resolved in found.items():
        lag = int(method.partition("@")[2] or 0)
        assert (resolved.warmup, resolved.rollout, resolved.optim) == (
            found["bc"].warmup,
            found["bc"].rollout.model_copy(update={"staleness": lag}),
            found["bc"].optim,
        )
        assert resolved.anchors.scheduler == ("sequential" if "+resets" in method else "none")
        if not method.startswith("bc"):
            assert resolved.algo_options["lambda_il"] == 0.1
            assert resolved.anchors.inject == found["bc"].anchors.inject > 0
    assert (found["bc-grpo"].anchors.inject, found["bc-ipa+resets"].anchors.inject) == (0, 0)
    for method in (name for name in found if name.startswith("ipa")):
        gamma = 0.7 if "0.7" in method else 0.95
        assert IPAOptions(**found[method].algo_options) == IPAOptions(
            baseline="leave_one_out", gamma=gamma, lambda_il=0.1
        ), "as registered, whatever the recipe sets for IPA alone"
    assert found["ipa"].algo_options["gamma"] == 0.95
    assert found["ipa-gamma0.7+resets"].algo_options["gamma"] == 0.7


def test_the_figure_is_the_same_for_the_same_numbers(tmp_path: Path) -> None:
    lines = [line("ipa", seed, [[0, 0.0], [100, 0.5]]) for seed in range(2)]
    for name in ("a.svg", "b.svg"):
        draw(tmp_path / name, "e", lines, summarise(lines, 100))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
