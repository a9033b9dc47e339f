"""Settings of a run with several environments: whose recipe, whose arguments, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ale import config
from ale.training import runs
from ale.training.training import TrainCommand, train_command
from rock_env.errors import UnknownName
from trainer.config import TrainConfig
from trainer.errors import ConfigError

MIXTURE = "frozen_lake:0.5,math:0.5"


def resolved(env: str = MIXTURE, *overrides: str, **options: object) -> config.Resolved:
    return config.resolve(options={"env": env, **options}, overrides=overrides)


def test_settings_are_those_of_the_first_and_arguments_those_of_each() -> None:
    found = resolved()
    first, other = (config.resolve(options={"env": env}).config for env in ("frozen_lake", "math"))
    assert found.config.warmup == first.warmup
    assert found.config.env_args == {"frozen_lake": first.env_args, "math": other.env_args}
    assert found.config.sampling.max_tokens == other.sampling.max_tokens > first.sampling.max_tokens
    (notice,) = found.notices
    assert "the recipe for frozen_lake, the first of" in notice
    assert "warmup.trajectories" in notice
    assert "sampling.max_tokens" not in notice


def test_what_was_chosen_is_no_difference_and_reruns_the_run(tmp_path: Path) -> None:
    first = resolved(MIXTURE, "env_args.frozen_lake.slippery=true").config
    assert first.alone("frozen_lake").env_args["slippery"] is True
    file = tmp_path / "config.toml"
    file.write_text(config.render(first))
    again = config.resolve(file=file)
    assert (again.config, again.notices) == (first, ())


def test_one_environment_of_a_recorded_mixture_keeps_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config.render(resolved(MIXTURE, "env_args.frozen_lake.slippery=true").config))
    found = config.resolve(file=file, options={"env": "frozen_lake"})
    assert found.config.env_args["slippery"] is True
    assert found.notices == ()


@pytest.mark.parametrize(
    ("env", "overrides", "kind", "said"),
    [
        ("frozen_lake:0.5,maths:0.5", (), UnknownName, "Did you mean 'math'"),
        ("frozen_lake:0.5,math:0.4", (), ConfigError, "the shares are 0.9 together"),
        (
            MIXTURE,
            ("env_args.slippery=true",),
            ConfigError,
            "say of which, such as env_args.frozen_lake.slippery",
        ),
        (MIXTURE, ("env_args.math.levle=1",), UnknownName, "unknown argument of env 'math' 'levle'"),
        (MIXTURE, ("eval.split=unseen",), UnknownName, "eval.split of env 'frozen_lake'"),
        (
            "frozen_lake:0.5,swe:0.5",
            (),
            ConfigError,
            "tiny for frozen_lake, coder for swe. Name one with --model",
        ),
        (
            "math:0.5,frozen_lake:0.5",
            ('eval.apart=["held_out_family"]',),
            UnknownName,
            "eval.apart of env 'frozen_lake'",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    env: str, overrides: tuple[str, ...], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as refused:
        resolved(env, *overrides)
    assert said in str(refused.value)


def test_a_model_that_was_named_plays_what_recipes_give_several() -> None:
    assert resolved("frozen_lake:0.5,swe:0.5", "warmup.trajectories=0", model="tiny").config.model == "tiny"


def test_a_split_that_the_recipe_of_one_has_apart_is_not_asked_of_the_others() -> None:
    assert config.resolve(options={"env": "fork_chain"}).config.eval.apart
    assert resolved("fork_chain:0.5,frozen_lake:0.5").config.eval.apart == ()


def test_folders_are_named_by_environments_and_shares() -> None:
    assert runs.default_name(TrainConfig(env="math:0.4, gym:a/b:0.6")) == "math-0.4+gym-a-b-0.6-ipa-seed0"


def test_a_dry_run_tells_what_each_gets(capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["rollout.groups_per_step=3", "steps=4", "warmup.trajectories=5"]
    command = TrainCommand({"env": MIXTURE}, overrides, None, None, False, None, True, True)
    assert train_command(command) == 0
    said = capsys.readouterr().out
    assert "#   frozen_lake 0.5: 2 1 2 1; 3 experts" in said
    assert "#   math 0.5: 1 2 1 2; 2 experts" in said
    assert "[env_args.math]" in said
