"""A few episodes of a class before it is trained on: what its settings should be, and whether anything can be learned.

Nothing is sampled here, so no training changes: the class's `expert` and random actions play, in a server like the run's.
Called where settings are resolved, for environments that were given as a class.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.agents.oracle import record_expert
from agent_runtime.policy import ChatTemplate, Message
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start, StopReason, Trajectory
from ale.config import Layer, Resolved
from ale.rock.reach import connected
from ale.training.rollouts import ByteTemplate
from ale.waiting import awaited
from rock_env import plugins
from rock_env.client import Client
from rock_env.env import Oracle
from rock_env.errors import Unimplemented
from rock_env.spec import EnvParams, EnvSpec, TaskSpec
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.models.chosen import learner_of

__all__ = ["probed"]

EXPERT, CHANCE, BLANK = "expert", "chance", "the answer '?'"
_TASKS = 6
"""Of the train split, played by each player; the first is played twice."""
_MOST_TURNS = 60
_LIMIT_S = 30.0
_MOST_SHOWN = 60
_SOURCE = "the probe of the class"
_EXPERTS, _INJECTED = 64, 16
_DRAWN = 256
"""Random actions beside those that were played: a rare one may be the longest."""
_SPARE = 2
_ANSWER = 16
"""Tokens of an answer, where nothing says what answers look like."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the episodes of all players took, in tokens of the run's model."""

    opening: int
    """The longest prompt of a first turn."""
    turn: int
    """The most that a turn adds to a prompt, without its answer."""
    answer: int
    """The longest answer of a player."""
    spare: int
    """Tokens by which others may be longer: none where the class says what answers there are."""
    turns: int
    """Of the longest episode."""
    ends: bool
    """Every episode ended by itself."""

    def need(self, turns: int, answer: int) -> int:
        """Return the tokens of a prompt with so many turns, and its answer."""
        return self.opening + answer + (turns - 1) * (self.turn + answer)


def probed(config: TrainConfig, resolve: Callable[[Layer], Resolved], say: Callable[[str], None]) -> Resolved:
    """Play the class that a run is set to, say what is assumed, and let that be the settings that nobody chose.

    `resolve` makes settings of them. Raise `ConfigError` where nothing could be learned, or `RockError`.
    """
    spec = plugins.load_env(config.env)
    params = plugins.env_params(spec, json.dumps(dict(config.env_args)))
    played = awaited(_play(spec, params), f"a few episodes of {config.env}, to choose its settings by")
    _check(spec, played)
    engine, options = learner_of(config)
    template = engine.template(config.model, options)
    measured = _measure(config, spec, params, played, template)
    chosen = _chosen(config, spec, measured, template)
    final = resolve(Layer(_SOURCE, chosen))
    _check_fits(final.config, measured, template.max_context)
    for line in _told(final, spec, measured, played, template.max_context):
        say(line)
    return final


async def _play(spec: EnvSpec, params: EnvParams) -> dict[str, list[Trajectory]]:
    """Return the episodes by player, the first one of each twice: at the beginning and at the end of the list.

    All but the expert do the same in every task.
    """
    source = spec.tasks(params)
    first = source.get("train", 0)
    players: dict[str, Callable[[TaskSpec], Oracle]] = {CHANCE: lambda _: spec.explorer(params, first)}
    if spec.has_oracle:
        players = {EXPERT: lambda task: spec.oracle(params, task), **players}
    found: dict[str, list[Trajectory]] = {}
    async with connected() as rock:
        await _check_beginnings(rock, spec, params)

        async def play(name: str, task: TaskSpec, oracle: Oracle) -> None:
            request = _request(spec.name, params, task, f"{name}-{task.index}")
            episode = await record_expert(request, rock=rock, oracle=oracle, template=ByteTemplate())
            if episode.failure is not None:
                raise ConfigError(
                    f"training in {spec.name!r} cannot begin: an episode of {task.id} by {name} failed with "
                    f"{episode.failure.code}: {episode.failure.message}"
                )
            found.setdefault(name, []).append(episode)

        for name, player in players.items():
            for number in [*range(_TASKS), 0]:
                task = source.get("train", number)
                try:
                    oracle = await asyncio.to_thread(player, task)
                    await play(name, task, oracle)
                except Unimplemented:  # the class does not say what actions look like
                    await play(BLANK, task, lambda _: "?")
    return found


async def _check_beginnings(rock: Client, spec: EnvSpec, params: EnvParams) -> None:
    """Raise `ConfigError` where one seed begins in two ways: an expert, who plays beside, would be wrong in each."""
    source = spec.tasks(params)
    env = await rock.make(spec.name, params.canonical())
    for number in range(_TASKS):
        task = source.get("train", number)
        first, second = [(await env.reset(task.id, 0, timeout_s=_LIMIT_S))[0] for _ in range(2)]
        if first != second:
            raise ConfigError(
                f"the class {spec.name!r} begins in two ways with one seed: got {_shown(first)} and then {_shown(second)} "
                f"as the first observation of {task.id}, expected the same. Let reset draw all chance from its seed: from "
                "random.Random(seed), in a class of Gymnasium from self.np_random after super().reset(seed=seed)."
            )
    await env.close()


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")


def _request(env: str, params: EnvParams, task: TaskSpec, name: str) -> RolloutRequest:
    return RolloutRequest(
        id=f"probe-{name}",
        env=env,
        params_json=params.canonical(),
        task_id=task.id,
        group_id=f"probe-{name}",
        index=0,
        seed=0,
        agent=AgentConfig(max_turns=_MOST_TURNS),
        sampling=SamplingParams(),
        start=Start(env_seed=0),
        time_limit_s=_LIMIT_S,
    )


def _transcript(one: Trajectory) -> tuple[object, ...]:
    return (one.first_observation, one.actions, one.observations, one.turn_rewards, one.reward)


def _check(spec: EnvSpec, played: dict[str, list[Trajectory]]) -> None:
    """Raise `ConfigError` for an environment in which nothing can be learned, whatever the model."""
    for name, (*episodes, again) in played.items():
        if _transcript(episodes[0]) != _transcript(again):
            raise ConfigError(
                f"the class {spec.name!r} is not determined by its seed: got two different episodes of {again.task_id} by "
                f"{name}, expected the same. Draw all chance from random.Random(seed) of reset."
            )
        if len({_transcript(one) for one in episodes}) == 1:
            raise ConfigError(
                f"the class {spec.name!r} has one single task: got the same episode for {len(episodes)} seeds, so that "
                "nothing can be held out. Let reset(seed) draw the task from its seed."
            )
    experts = played.get(EXPERT, ())
    if experts and not any(one.passed for one in experts):
        rewards = ", ".join(f"{one.reward:g}" for one in experts)
        raise ConfigError(
            f"the expert of {spec.name!r} solved none of {len(experts)} tasks: got the returns {rewards}, expected at least "
            "reward_threshold (1 unless the class says otherwise). Correct expert, the rewards, or reward_threshold."
        )


def _measure(
    config: TrainConfig,
    spec: EnvSpec,
    params: EnvParams,
    played: dict[str, list[Trajectory]],
    template: ChatTemplate,
) -> _Measured:
    episodes = [one for each in played.values() for one in each]
    instruction = spec.tasks(params).get("train", 0).instruction
    system = [Message("system", instruction)] if config.agent.system and instruction else []
    firsts = [one.first_observation for one in episodes]
    shown = [text for one in episodes for text in one.observations[:-1]]
    said = {action for one in episodes for action in one.actions}
    if CHANCE in played:
        draw = spec.explorer(params, spec.tasks(params).get("train", 0))
        said |= {draw("") for _ in range(_DRAWN)}
    return _Measured(
        opening=max(len(template.open([*system, Message("user", text)])) for text in {*firsts, *shown}),
        turn=max(
            (len(template.extend([Message("user", text)], closed=True)) for text in set(shown)), default=0
        ),
        answer=_ANSWER
        if set(played) == {BLANK}
        else max(len(template.encode_completion(one)) for one in said),
        spare=0 if CHANCE in played else _SPARE,
        turns=max(len(one.turns) for one in episodes),
        ends=all(one.stop_reason is not StopReason.MAX_TURNS for one in episodes),
    )


def _chosen(
    config: TrainConfig, spec: EnvSpec, measured: _Measured, template: ChatTemplate
) -> dict[str, object]:
    """Return settings under which such episodes fit."""
    tiny = config.engine == "tiny"
    answer = (
        measured.answer + measured.spare if tiny else max(config.sampling.max_tokens, measured.answer)
    )  # room to think
    turns = min(100, 2 * measured.turns + 8) if measured.ends else _MOST_TURNS
    window = 0
    if measured.need(turns, answer) > template.max_context:
        window = 1
        while measured.need(window + 1, answer) <= template.max_context:
            window += 1
    chosen: dict[str, object] = {
        "agent": {"max_turns": turns, "window_turns": window},
        "sampling": {"max_tokens": answer},
        "rollout": {"token_budget": max(4, answer) if tiny else answer},
    }
    if spec.has_oracle and tiny:
        chosen |= {"warmup": {"trajectories": _EXPERTS}, "anchors": {"inject": _INJECTED}}
    return chosen


def _check_fits(config: TrainConfig, measured: _Measured, context: int) -> None:
    """Raise `ConfigError` where the episodes that were played would not fit into what the run was set to."""
    longest = config.sampling.max_tokens
    if longest < measured.answer:
        raise ConfigError(
            f"sampling.max_tokens={longest} cuts answers off: got one of {measured.answer} tokens from the class's own "
            f"players. Set sampling.max_tokens={measured.answer}."
        )
    window = config.agent.window_turns or measured.turns
    need = measured.need(min(window, measured.turns), longest)
    if need > context:
        remedy = (
            f"a model with a longer context (engine_options.max_context={2 ** need.bit_length()} of tiny)"
        )
        if measured.need(1, longest) <= context:
            remedy = "agent.window_turns=1, which shows the newest observation alone"
        raise ConfigError(
            f"rollouts would end with context_full, and nothing be learned: got {measured.turns} turns of up to "
            f"{measured.turn + longest} tokens behind an opening of {measured.opening}, {need} tokens together, expected at "
            f"most {context}. Set {remedy}, or observe less."
        )


def _told(
    final: Resolved,
    spec: EnvSpec,
    measured: _Measured,
    played: Mapping[str, Sequence[Trajectory]],
    context: int,
) -> list[str]:
    """Return what was assumed, and how to say otherwise; without the settings that the user chose."""
    config = final.config
    count = sum(map(len, played.values()))
    window = config.agent.window_turns
    kept = "all turns" if not window else f"the newest {window} observations"
    ended = f"took up to {measured.turns}" if measured.ends else f"had not ended after {measured.turns}"
    rewards = {one.reward for each in played.values() for one in each}
    first = played[next(iter(played))][0]
    summary = " ".join(spec.summary.split())
    settings = {
        "agent.max_turns": f"{config.agent.max_turns}: episodes {ended}",
        "agent.window_turns": f"{window}: {measured.turn + config.sampling.max_tokens} tokens a turn, {context} in a "
        f"context, so {kept} are shown",
        "sampling.max_tokens": f"{config.sampling.max_tokens}: the longest action took {measured.answer}",
        "warmup.trajectories": f"{config.warmup.trajectories}: "
        f"{'episodes of expert, imitated first' if config.warmup.trajectories else 'nobody is imitated'}",
    }
    return [
        f"{spec.name}: {count} episodes of {' and '.join(played)} were played. Assumed (docs/environments.md#a-class):",
        "  tasks: train/N is seed N, held_out/N is seed 1,000,000 + N; the first begins with "
        f"{first.first_observation[:40]!r}",
        f"  told to a model of language: {_shown(summary)}  (instruction of the class)",
        f"  rewards seen: {min(rewards):g} to {max(rewards):g}  (passed: reward_threshold, else 1)",
        *(f"  {name}={value}" for name, value in settings.items() if name not in final.chosen),
    ]
