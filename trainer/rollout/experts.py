"""Experts: successful trajectories to imitate, recorded from the oracle now or by anybody before.

Reading decides which records are examples for this run and tells them in the tokens of its model; nothing here learns,
samples or touches an environment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
from pydantic import ValidationError

from agent_runtime.agents.oracle import retell
from agent_runtime.policy import ChatTemplate, SampleRequest
from agent_runtime.store import SUFFIX, decode, encode, files_at, read_segment
from agent_runtime.types import AgentConfig, IntArray, RolloutRequest, SamplingParams, Trajectory
from rock_env.spec import EnvParams, EnvSpec
from rock_env.threads import completed
from trainer.environments import Environment
from trainer.errors import ConfigError, Halted
from trainer.lineage import ExpertRecord, Source, digest_of, digest_of_text
from trainer.rollout.failures import handing_over
from trainer.rollout.starts import Origin

__all__ = [
    "HELD_OUT",
    "Experts",
    "Quiz",
    "check_data",
    "files_of",
    "hold_out",
    "play_experts",
    "quizzes",
    "read_experts",
    "recorded",
]

HELD_OUT = "expert_held_out"
"""Kind of the file that keeps the experts which are not imitated."""
MOST_QUIZZES = 64
"""Turns of held-out experts that the model answers after every epoch: sampling costs more than a loss."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Trajectories in the run's own tokens, and where they came from."""

    trajectories: list[Trajectory]
    records: list[ExpertRecord]
    sources: list[Source]

    def provenance(self, trajectory_id: str) -> tuple[Origin, str]:
        """Return who acted in one of them, and where it came from."""
        record = next(each for each in self.records if each.id == trajectory_id)
        return Origin(record.origin), record.source

    @classmethod
    def joined(cls, several: Sequence[Experts]) -> Experts:
        """Return the experts of several environments as one."""
        return cls(
            [t for each in several for t in each.trajectories],
            [record for each in several for record in each.records],
            [source for each in several for source in each.sources],
        )

    @property
    def digest(self) -> str:
        """Return the digest of all records, in order."""
        return digest_of_text("".join(f"{record.digest}\n" for record in self.records))


@dataclass(frozen=True, slots=True)
class Quiz:
    """A turn of an expert: what the model is shown, and what the expert answered."""

    request: SampleRequest
    answer_ids: IntArray


def files_of(place: str) -> list[Path]:
    """Return the trajectory files at a place: one file, a run's folder, or any folder. Raise `ConfigError`."""
    if found := files_at(Path(place)):
        return found
    raise ConfigError(
        f"no trajectories in {place!r}: it is no run's folder, no folder with *{SUFFIX} files and no file. Record some with "
        "`ale rollout --policy oracle --out FOLDER`."
    )


def check_data(places: Sequence[str], *, environments: Sequence[Environment], split: str) -> None:
    """Raise `ConfigError` where no record is an example for this run, before anything heavy starts."""
    reasons: Counter[str] = Counter()
    for path in (path for place in places for path in files_of(place)):
        for trajectory in read_segment(path):
            reason = _why_not(trajectory, environments, split)
            if not reason:
                return
            reasons[reason] += 1
    raise _nothing(places, reasons)


def play_experts(
    record: Callable[[Sequence[RolloutRequest]], list[bytes]],
    requests: Sequence[RolloutRequest],
    *,
    wanted: int,
    env: str,
    check: Callable[[Sequence[Trajectory]], None],
    said: Callable[[str], None],
) -> Experts:
    """Let the oracle play the requests, `wanted` at a time, until so many succeeded; fewer are `said`, none is `Halted`.

    `check` raises `Halted` where too many of a round failed. Either error takes along what was played.
    """
    played: list[bytes] = []
    experts: list[Trajectory] = []
    with handing_over(played):
        for first in range(0, len(requests), wanted):
            encoded = record(requests[first : first + wanted])
            played += encoded
            trajectories = [decode(data) for data in encoded]
            check(trajectories)
            experts += [t for t in trajectories if t.passed and t.has_reward]
            if len(experts) >= wanted:
                break
        if not experts:
            raise Halted(
                f"the oracle of {env} solved none of {len(requests)} tasks, so there is nothing to imitate. Check the "
                "environment with `ale rollout --policy oracle`, or set warmup.trajectories=0."
            )
    if len(experts) < wanted:
        said(
            f"the oracle of {env} solved {len(experts)} of {len(requests)} tasks: fewer experts than "
            f"warmup.trajectories={wanted}. Lower it, or check the environment with `ale rollout --policy oracle`."
        )
    return recorded(experts[:wanted], env)


def recorded(trajectories: Sequence[Trajectory], env: str) -> Experts:
    """Return what the run's own oracle played, with its provenance."""
    source = f"oracle of {env}"
    records = [_record(t, t, source, Origin.ORACLE) for t in trajectories]
    return Experts(list(trajectories), records, [Source(source, "", len(records))])


def read_experts(
    places: Sequence[str],
    *,
    environments: Sequence[Environment],
    split: str,
    template: ChatTemplate,
    agent: AgentConfig,
    max_tokens: int,
) -> Experts:
    """Read what is an example for this run: whole successes on tasks of `split` in its environments, each once.

    Raise `ConfigError` if there is none, saying why, or `StoreError` for a damaged file.
    """
    tasks = {each.spec.key: each.source for each in environments}
    experts = Experts([], [], [])
    seen: set[tuple[object, ...]] = set()
    names: Counter[str] = Counter()
    for path in dict.fromkeys(path for place in places for path in files_of(place)):
        skipped: Counter[str] = Counter()
        before = len(experts.records)
        for original in read_segment(path):
            actions = tuple(turn.action for turn in original.played())
            key = (original.env, original.task_id, original.start.env_seed, actions)
            reason = _why_not(original, environments, split) or ("there before" if key in seen else "")
            if not reason:
                _, _, index = original.task_id.rpartition("/")
                instruction = tasks[original.env].get(split, int(index)).instruction
                name = original.id if not names[original.id] else f"{original.id}~{names[original.id]}"
                told = completed(
                    retell(
                        original,
                        name,
                        template=template,
                        agent=agent,
                        instruction=instruction,
                        max_tokens=max_tokens,
                    )
                )
                reason = "" if told else "longer than the model's context"
            if reason or told is None:
                skipped[reason] += 1
                continue
            seen.add(key)
            names[original.id] += 1
            experts.trajectories.append(told)
            origin = Origin.IMPORTED if original.is_expert else Origin.TEACHER
            experts.records.append(_record(told, original, str(path), origin))
        taken = len(experts.records) - before
        experts.sources.append(Source(str(path), digest_of(path), taken, dict(skipped)))
    if not experts.records:
        raise _nothing(places, sum((Counter(source.skipped) for source in experts.sources), Counter()))
    return experts


def hold_out(experts: Experts, share: float, seed: int) -> tuple[Experts, list[Trajectory], list[Trajectory]]:
    """Return the experts with their fates noted, those to imitate and those held out.

    Whole tasks are held out, about `share` of them; with any share at least one, but never the last to imitate.
    """
    tasks = sorted({(trajectory.env, trajectory.task_id) for trajectory in experts.trajectories})
    count = min(max(1, round(share * len(tasks))), len(tasks) - 1) if share and tasks else 0
    chosen = set(random.Random(seed).sample(tasks, count))
    held = [t for t in experts.trajectories if (t.env, t.task_id) in chosen]
    shown = [t for t in experts.trajectories if (t.env, t.task_id) not in chosen]
    names = {t.id for t in held}
    marked = [msgspec.structs.replace(each, held_out=each.id in names) for each in experts.records]
    return replace(experts, records=marked), shown, held


def quizzes(trajectories: Sequence[Trajectory], seed: int) -> list[Quiz]:
    """Return at most `MOST_QUIZZES` turns worth imitating, the same ones each time, asked greedily."""
    every = [quiz for trajectory in trajectories for quiz in _quizzes(trajectory)]
    if len(every) <= MOST_QUIZZES:
        return every
    return [every[index] for index in sorted(random.Random(seed).sample(range(len(every)), MOST_QUIZZES))]


def _quizzes(trajectory: Trajectory) -> Iterator[Quiz]:
    for branch in trajectory.branches():
        shown: list[IntArray] = []
        for position, turn in enumerate(branch.turns):
            shown.append(turn.context_ids)
            if position >= branch.shared and not trajectory.is_faulty(turn.index):
                params = SamplingParams(temperature=0.0, max_tokens=max(1, len(turn.completion_ids)))
                prompt_ids = np.concatenate(shown)
                request = SampleRequest(trajectory.id, turn.index, prompt_ids, params, seed=0)
                yield Quiz(request, turn.completion_ids)
            shown.append(turn.completion_ids)


def _why_not(trajectory: Trajectory, environments: Sequence[Environment], split: str) -> str:
    """Return why a record is no example for this run, in words for its account; nothing if it is one."""
    if not trajectory.has_reward:
        return "failed to run"
    if not trajectory.passed or trajectory.reward <= 0 or not trajectory.turns:
        return "not passed"
    if trajectory.is_session:
        return "of a CLI agent, whose turns are no actions"
    if trajectory.start.anchor:
        return "begins after somebody else's turns"
    if trajectory.start.hint:
        return "was given a hint"
    env = next((each for each in environments if each.spec.key == trajectory.env), None)
    if env is None:
        return f"of {trajectory.env}"
    if differing := _other_arguments(trajectory, env.spec, env.params):
        return f"with other env_args: {differing}"
    if trajectory.task_id.rpartition("/")[0] != split:
        return f"on a task that is not of the split {split}"
    return ""


def _other_arguments(trajectory: Trajectory, spec: EnvSpec, params: EnvParams) -> str:
    try:
        theirs = spec.params.model_validate_json(trajectory.params_json or "{}").model_dump()
    except ValidationError:
        return trajectory.params_json
    ours = params.model_dump()
    return ", ".join(
        f"{name}={theirs[name]!r}, here {ours[name]!r}" for name in ours if theirs[name] != ours[name]
    )


def _record(told: Trajectory, original: Trajectory, source: str, origin: Origin) -> ExpertRecord:
    return ExpertRecord(
        id=told.id,
        task_id=told.task_id,
        source=source,
        source_id=original.id,
        digest=blake2b(encode(original), digest_size=16).hexdigest(),
        turns=len(told.turns),
        faulty_turns=sum(told.is_faulty(turn) for turn in range(len(told.turns))),
        held_out=False,
        origin=origin,
    )


def _nothing(places: Sequence[str], reasons: Counter[str]) -> ConfigError:
    told = [f"{count} {reason}" for reason, count in reasons.most_common()]
    found = f"the trajectories there are {'; '.join(told)}" if told else "there are no trajectories"
    return ConfigError(
        f"nothing to imitate in {', '.join(places)}: {found}. Wanted are successes from the true start on tasks of the "
        "split, in the environment and with the env_args of this run."
    )
