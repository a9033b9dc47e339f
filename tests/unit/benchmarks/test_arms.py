"""The arms of each recipe: valid runs, a file of raw lines that is continued, differences within a seed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ale import config
from benchmarks import arms


def line(arm: str, seed: int, success: float, env_steps: int = 100) -> dict[str, Any]:
    return {
        "env": "e",
        "method": arm,
        "seed": seed,
        "success_final": success,
        "env_steps": env_steps,
        "curve": [[0, 0.0], [env_steps, success]],
    }


def test_differences_are_within_a_seed_and_read_ipa_where_the_arm_ended() -> None:
    lines = [
        line("ipa", 1, 0.8),
        line("ipa", 2, 0.6),
        line("x", 1, 0.5, 50),
        line("x", 2, 0.1, 50),
        line("x", 3, 0.9),
    ]
    found = arms.summarise([*lines, {"env": "e", "method": "x", "seed": 4, "error": "broke"}])["e"]
    assert found["arms"]["x"] == {1: 0.5, 2: 0.1, 3: 0.9}
    assert found["differences"] == {"x": [0.4, 0.3, 0.5, 2]}
    assert found["equal_env_steps"] == {"x": [0.05, -0.1, 0.2, 2]}
    assert "0.400 [0.300, 0.500]" in arms.table(found)


def test_imitation_takes_no_environment_steps_and_has_no_such_difference() -> None:
    pairs = [line(arm, seed, 0.5, steps) for seed in (1, 2) for arm, steps in (("ipa", 100), ("bc", 0))]
    found = arms.summarise(pairs)["e"]
    assert found["equal_env_steps"] == {}
    assert found["differences"]["bc"] == [0.0, 0.0, 0.0, 2]


@pytest.mark.parametrize("env", sorted(arms.ARMS))
def test_every_arm_is_a_valid_run_with_the_same_recipe_experts_and_updates(env: str) -> None:
    found = {}
    for _, arm, _, words in arms.jobs([env], [], 1):
        pairs = list(zip(words[::2], words[1::2], strict=True))
        options = {name[2:]: value for name, value in pairs if name in ("--env", "--algo")}
        settings = [value for name, value in pairs if name == "-s"]
        found[arm] = config.resolve(options={**options, "seed": 400}, overrides=settings).config
    ipa = found.pop("ipa")
    for arm, resolved in found.items():
        assert resolved.warmup == ipa.warmup
        assert resolved.optim == ipa.optim
        assert resolved.steps == ipa.steps or arm == "bc"
        assert resolved.anchors.inject == ipa.anchors.inject > 0
        assert resolved.rollout.staleness == (8 if arm.endswith("@8") else 0)
        assert resolved.anchors.scheduler == ("sequential" if arm.endswith("+resets") else "none")
        if arm != "bc":
            assert resolved.algo_options["lambda_il"] == ipa.algo_options["lambda_il"] == 0.1


def test_resuming_does_only_what_is_missing_failed_or_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(env: str, arm: str, seed: int, arguments: list[str]) -> dict[str, Any]:
        asked.append(seed)
        return line(arm, seed, 0.5) | {"arguments": arguments, "success_warmup": 0.0}

    monkeypatch.setattr(arms, "measure", measured)
    raw = tmp_path / "raw.jsonl"
    failed = {"env": "e", "method": "bc", "seed": 2, "arguments": [], "error": "x"}
    whole = [json.dumps(one) for one in (line("bc", 1, 0.9) | {"arguments": []}, failed)]
    raw.write_text("\n".join(whole) + '\n{"env": "e", "meth')
    work = [("e", "bc", seed, list[str]()) for seed in (1, 2, 3)]
    lines = arms.run_all(work, raw)
    assert asked == [2, 3]
    assert [one["success_final"] for one in lines] == [0.9, 0.5, 0.5]
    assert arms.run_all(work, raw) == lines
    assert len(raw.read_text().splitlines()) == 4
    with pytest.raises(ValueError, match="with arguments"):
        arms.run_all([("e", "bc", 1, ["--steps", "9"])], raw)


def test_a_run_that_fails_becomes_a_line_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: list[str]) -> dict[str, Any]:
        raise RuntimeError(f"{Path.cwd()}/x exited with 1")

    monkeypatch.setattr(arms, "run_training", fails)
    found = arms.measure("e", "bc", 1, [])
    assert found["error"] == "./x exited with 1"
    assert "curve" not in found
