"""Before a class is trained on it is played, so that what cannot learn is refused before anything starts."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest

from ale import api
from ale import config as configuration
from ale.training.probe import probed
from rock_env import plugins
from rock_env.errors import InvalidArgument
from rock_env.games.own import class_env
from rock_env.spec import EnvParams, EnvSpec
from rock_env.tasks import ProceduralTasks
from trainer.config import TrainConfig
from trainer.errors import ConfigError


class Count:
    """Count up from the number that you see, by one number a turn."""

    words, turns = 1, 3

    def reset(self, seed: int = 0) -> str:
        self.number, self.left = seed % 7, self.turns
        return self._text()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action == self.expert("")
        self.number, self.left = self.number + 1, self.left - 1
        return self._text(), float(right and not self.left), not right or not self.left, False, {}

    def expert(self, observation: str) -> str:
        return str(self.number + 1)

    def _text(self) -> str:
        return " ".join([str(self.number)] * self.words)


def tried(cls: type, **chosen: Any) -> tuple[TrainConfig, str]:
    said: list[str] = []
    with plugins.given({("ale.envs", "mine"): class_env(cls, "mine")}):
        options = {"env": "mine", **chosen}
        config = configuration.resolve(options=options).config
        found = probed(
            config, lambda layer: configuration.resolve(options=options, before=layer), said.append
        )
    return found.config, "\n".join(said)


async def test_a_notebook_in_whose_thread_a_loop_runs_has_the_same_settings() -> None:
    assert tried(Count) == await asyncio.to_thread(tried, Count)


def test_settings_follow_from_the_episodes_and_are_said() -> None:
    config, said = tried(Count)
    assert (config.agent.max_turns, config.agent.window_turns) == (14, 0)
    assert (
        config.sampling.max_tokens == 4
    )  # a digit and an end, and two to spare: nothing says what actions there are
    assert config.warmup.trajectories > 0
    assert "agent.max_turns=14: episodes took up to 3" in said
    assert "train/N is seed N" in said
    config, said = tried(Count, agent={"max_turns": 5}, warmup={"trajectories": 64})
    assert config.agent.max_turns == 5  # what was chosen stays, and is not said to be assumed
    settings = re.findall(r"^  ([a-z_]+\.[a-z_]+)=", said, re.MULTILINE)
    assert settings == ["agent.window_turns", "sampling.max_tokens"]


def test_a_long_text_gets_a_window_that_fits() -> None:
    class Long(Count):
        words, turns = 80, 8  # up to 243 tokens a turn, in a context of 512

    config, said = tried(Long)
    assert config.agent.window_turns == 2
    assert "512 in a context, so the newest 2 observations are shown" in said
    with pytest.raises(
        ConfigError, match=r"context_full.*8 turns of up to 2\d\d tokens.*agent\.window_turns=1"
    ):
        tried(Long, agent={"window_turns": 0})

    class TooLong(Count):
        words = 400

    with pytest.raises(ConfigError, match=r"context_full.*at most 512\. Set a model with a longer context"):
        tried(TooLong)


def test_what_nothing_can_be_learned_from_is_refused() -> None:
    class One(Count):
        def reset(self, seed: int = 0) -> str:
            return super().reset(0)

    class Moody(Count):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            text, *rest = super().step(action)
            return (f"{text} {random.SystemRandom().random()}", *rest)  # type: ignore[return-value]

    class Unseeded(Count):
        def reset(self, seed: int = 0) -> str:
            return super().reset(random.SystemRandom().randrange(7))

    class Lost(Count):
        def expert(self, observation: str) -> str:
            return "0"

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 0.0, True, False, {}

    class Broken(Count):
        def step(self, action: str) -> Any:
            raise ValueError("no such word")

    for cls, said in (
        (One, "has one single task: got the same episode for 6 seeds"),
        (Moody, "is not determined by its seed: got two different episodes of train/0"),
        (
            Unseeded,
            r"begins in two ways with one seed: got '\d' and then '\d' as the first observation of train/\d",
        ),
        (Lost, "expert of 'mine' solved none of 7 tasks: got the returns 0, 0"),
        (
            Broken,
            r"episode of train/0 by expert failed.*mine\.expert|mine\.step raised ValueError: no such word",
        ),
    ):
        with pytest.raises((ConfigError, InvalidArgument), match=said):
            tried(cls)
    with pytest.raises(
        ConfigError, match=r"sampling\.max_tokens=1 cuts answers off.*Set sampling\.max_tokens=2"
    ):
        tried(Count, sampling={"max_tokens": 1})


def test_answers_have_room_for_the_longest_action_even_if_nobody_played_it() -> None:
    class Rare(Count):
        actions = (*map(str, range(30)), "a longer word")

    assert tried(Rare)[0].sampling.max_tokens == len("a longer word") + 1


@pytest.mark.ray
def test_a_model_whose_first_rollouts_are_all_alike_is_refused_before_it_learns(tmp_path: Path) -> None:
    class Hopeless(Count):
        expert = None  # type: ignore[assignment]
        actions = ("1", "2")

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            self.number -= 1  # games of other lengths, none of them better
            return "", 0.0, self.number < 0, False, {}

    with plugins.given({("ale.envs", "mine"): class_env(Hopeless, "mine")}):
        small = {"rollout": {"groups_per_step": 2, "workers": 1, "engines": 1}, "steps": 1}
        config = configuration.resolve(options={"env": "mine", **small}).config
        for _ in range(2):  # the folder is free again
            with pytest.raises(
                ConfigError, match=r"all 10 first rollouts have the reward 0, so that none is better.*expert"
            ):
                api.train(config, run_folder=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_split_that_no_task_falls_into_is_told_before_anything_starts(tmp_path: Path) -> None:
    def tasks(params: EnvParams) -> ProceduralTasks:
        return ProceduralTasks(lambda seed: "alone", salt="few", instruction="")

    few = EnvSpec("few", "1", "", EnvParams, lambda params: None, tasks)  # type: ignore[arg-type,return-value]
    with plugins.given({("ale.envs", "few"): few}):
        config = configuration.resolve(options={"env": "few", "warmup": {"trajectories": 0}}).config
        with pytest.raises(InvalidArgument, match=r"split '(held_out|train)' is empty"):
            api.train(config, run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
