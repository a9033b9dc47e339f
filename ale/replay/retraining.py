"""`ale replay train`: compute a step's update again, from the run's folder alone.

The learner begins with the newest checkpoint before the step, and learns the recorded rollouts of every step from there on,
as the run did: no engine serves, no environment plays and no Ray starts. What comes out is compared byte for byte with the
checkpoint of the step, where that is kept, and with the metrics that the run logged.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import load_file

from agent_runtime.store import decode, kept_segment, read_encoded
from agent_runtime.types import Trajectory
from ale.errors import Diverged
from ale.terminal import stdout
from ale.training import runs
from ale.waiting import waiting_for
from rock_env import plugins
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data.ledger import add_left_out
from trainer.environments import name_of, open_environments
from trainer.errors import RunFolderError
from trainer.models.chosen import check_files
from trainer.processes.learner import Learner, Prepared
from trainer.rollout.experts import HELD_OUT
from trainer.rollout.filling import why_set_aside
from trainer.rollout.filtering import rejection
from trainer.rollout.planning import Plan, Planner
from trainer.rollout.pools import Pools
from trainer.rollout.report import sampled_tokens
from trainer.run_state import RunState
from trainer.scheduler.groups import anchor_at
from trainer.scheduler.journal import JOURNAL, learned_batches
from trainer.seeds import derive

__all__ = ["Retrained", "StepAgain", "prepare_again", "retrain", "train_command"]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Retrained:
    """A step's update, computed again."""

    step: int
    base: int
    """The step after whose checkpoint it began."""
    metrics: Mapping[str, float]
    """Of the update, as the learner gives them."""
    metrics_compared: int
    metrics_apart: tuple[str, ...]
    """Those that the run logged otherwise."""
    tensors_compared: int | None
    """None: no checkpoint of the step is kept."""
    tensors_apart: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Return whether all that could be compared is equal, to the byte."""
        return not (self.metrics_apart or self.tensors_apart)


def train_command(run: str, step: int | None, out: Path | None) -> None:
    """Compute a step's update again and say whether it is the run's. Raise `Diverged` if not, `AleError` if impossible."""
    folder = runs.locate(run)
    with waiting_for(f"a step of {folder} to be computed again"):
        found = retrain(folder, step, out=out)
    said = stdout()
    said.print(
        f"step {found.step} of {folder}, from the checkpoint of step {found.base} and the records alone"
    )
    said.print(_compared("metrics", found.metrics_compared, found.metrics_apart))
    if found.tensors_compared is None:
        said.print(f"no checkpoint of step {found.step} is kept: its weights cannot be compared")
    else:
        said.print(_compared("tensors of model and optimizer", found.tensors_compared, found.tensors_apart))
    if out is not None:
        said.print(f"the model after the step is in {out}")
    if not found.equal:
        raise Diverged(f"step {found.step} did not come out as recorded")


def _compared(what: str, count: int, apart: Sequence[str]) -> str:
    if not apart:
        return f"all {count} {what} are equal"
    more = f" and {len(apart) - _SHOWN} more" if len(apart) > _SHOWN else ""
    return f"{len(apart)} of {count} {what} differ: {', '.join(apart[:_SHOWN])}{more}"


def retrain(folder: Path, step: int | None = None, *, out: Path | None = None) -> Retrained:
    """Compute the update of a step, by default the last one recorded, and compare it with what the run has of it.

    The model after it is written to `out`, which must not be there. Raise `RunFolderError` for what is no run or has no such
    step, `CheckpointError` where no checkpoint before it is kept.
    """
    config = runs.recorded_config(folder)
    recorded = _recorded_steps(folder)
    wanted = max(recorded, default=0) if step is None else step
    _need_recorded(folder, wanted, recorded)
    if out is not None and out.exists():
        raise RunFolderError(f"{out} is there already: expected a new folder. Choose another --out.")
    learning, base = _before(config, folder, wanted)
    metrics = learning.learn(wanted)
    logged = recorded[wanted]
    common = sorted(set(metrics) & set(logged))
    apart = tuple(name for name in common if not _same(metrics[name], logged[name]))
    kept = checkpoint.place(folder / "checkpoints", wanted)
    if kept.is_dir():
        checkpoint.check(kept)
    count, different = learning.compared(kept)
    if out is not None:
        out.mkdir(parents=True)
        learning.learner.export(out)
    return Retrained(wanted, base, metrics, len(common), apart, count, different)


@dataclass(frozen=True, slots=True)
class StepAgain:
    """A recorded step as the learner was about to learn it."""

    step: int
    base: int
    lr: float
    learner: Learner
    prepared: Prepared
    set_aside: Mapping[str, str]
    """Rollouts that the learner did not see: trajectory id -> why."""


def prepare_again(folder: Path, step: int) -> StepAgain:
    """Bring the learner to just before a step's update. Raise as `retrain` does."""
    config = runs.recorded_config(folder)
    _need_recorded(folder, step, _recorded_steps(folder))
    learning, base = _before(config, folder, step)
    prepared, aside, lr = learning.prepare(step)
    return StepAgain(step, base, lr, learning.learner, prepared, aside)


def _before(config: TrainConfig, folder: Path, step: int) -> tuple[_Learning, int]:
    """Return what learns, brought to just before a step, and the step after whose checkpoint it began."""
    kept, base = checkpoint.before_step(folder / "checkpoints", step)
    learning = _Learning(config, folder, kept, base)
    for each in range(base + 1, step):
        learning.learn(each)
    return learning, base


def _need_recorded(folder: Path, step: int, recorded: Mapping[int, object]) -> None:
    if step not in recorded:
        known = f"{min(recorded)} to {max(recorded)}" if recorded else "none"
        raise RunFolderError(f"step {step} of {folder} is not recorded: got {step}, expected one of {known}.")


def _same(one: float, two: float | None) -> bool:
    return two is not None and (one == two or (one != one and two != two))


def _recorded_steps(folder: Path) -> dict[int, dict[str, float]]:
    """Return what the run logged of each of its training steps. Raise `RunFolderError` where that cannot be read."""
    found = {}
    try:
        path = folder / "metrics.jsonl"
        for line in budget.lines(path, str(path)):
            budget.check_json(line, str(path))
            row = json.loads(line)
            if row.get("kind") == "train":
                found[int(row["step"])] = {k: v for k, v in row.items() if isinstance(v, int | float)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(
            f"the metrics of {folder} cannot be read: {error}. Restore them from a copy."
        ) from error
    return found


class _Learning:
    """A run's learner, pool and pass rates, brought from a checkpoint through recorded steps."""

    def __init__(self, config: TrainConfig, folder: Path, base: Path, number: int) -> None:
        self._config, self._folder = config, folder
        checkpoint.check(base)
        for path in base.glob("*.msgpack"):
            budget.check_msgpack(budget.read_whole(path, str(path)), str(path))
        check_files(config.model)
        state = checkpoint.read_state(base, RunState)
        pools = Pools(config)
        pools.restore(state.anchors)
        self.learner = Learner(config)
        self.learner.ready(plugins.own())
        with checkpoint.damaged(base):
            self.learner.load(base.absolute())
        self.learner.take_experts(*(self._stored(kind) for kind in ("expert", HELD_OUT)))
        self.learner.publish(number)
        self._learns = self.learner.learns_from_rollouts()
        self._planner = Planner(config, open_environments(config), pools, learns=self._learns)
        self._rates = state.rates(self._planner.names)
        self._batches = learned_batches(folder) if config.rollout.streams else {}
        """Of a stream, by step."""

    def learn(self, step: int) -> Mapping[str, float]:
        """Take the step's update and move the pool; return its metrics. Raise `RunFolderError` for another plan's."""
        config = self._config
        plan, encoded, played = self._recorded(step)
        if self._learns:
            metrics = self.learner.update(encoded, plan.injections, lr=plan.lr, step=step)
        else:
            batch, seed = config.warmup.batch_trajectories, derive(config.seed, "imitation", step)
            metrics = self.learner.imitate(lr=plan.lr, batch_trajectories=batch, seed=seed)
        # A mean over updates is rounded: the run logs what it asked for.
        metrics = {**metrics, "lr": plan.lr * metrics.get("lr_share", 1.0)}
        aside = self._aside(step)
        if self._learns:  # as the run does: the learner accounts for what it was given alone
            left = [(why, sampled_tokens([t])) for t, why in aside]
            sampled = sampled_tokens([*played, *(t for t, _ in aside)])
            metrics = add_left_out({}, metrics, left, sampled=sampled)
        seen = [*played, *(t for t, _ in aside if not rejection(t, config.filter))]
        self._planner.observe_anchors(plan, seen)
        self._planner.observe_tasks(plan, seen, self._rates)
        self.learner.publish(step)
        return metrics

    def prepare(self, step: int) -> tuple[Prepared, dict[str, str], float]:
        """Return the step as it is about to be learned, why rollouts are not part of it, and its rate. Raise as `learn`."""
        if not self._learns:
            raise InvalidArgument(
                f"step {step} imitates its experts and learns no rollout: there is none to account for."
            )
        plan, encoded, _ = self._recorded(step)
        aside = {t.id: why for t, why in self._aside(step)}
        return self.learner.prepare(encoded, plan.injections, step=step), aside, plan.lr

    def _recorded(self, step: int) -> tuple[Plan, list[bytes], list[Trajectory]]:
        encoded = self._stored("step", step)
        played = [decode(data) for data in encoded]
        streams = self._config.rollout.streams
        plan = self._streamed(step, played) if streams else self._planner.plan(step, self._rates)
        self._check(plan, played)
        return plan, encoded, played

    def _streamed(self, step: int, played: Sequence[Trajectory]) -> Plan:
        """Return what a step of a stream learned, by the run's journal. Raise `RunFolderError` where the records differ."""
        batch = self._batches.get(step)
        if batch is None or batch.rollouts != [t.id for t in played]:
            raise RunFolderError(
                f"the journal of {self._folder} tells of other rollouts than the records of step {step}: expected the "
                f"{len(played)} on record, got {len(batch.rollouts) if batch else 'none'}. Restore {JOURNAL} from a copy."
            )
        anchors = {group: anchor_at(place) for group, place in batch.anchors.items()}
        return self._planner.learning(step, [], anchors)

    def _aside(self, step: int) -> list[tuple[Trajectory, str]]:
        found = [decode(data) for data in self._stored("set_aside", step)]
        return [(t, why_set_aside(t, self._config, step)) for t in found]

    def _stored(self, kind: str, step: int | None = None) -> list[bytes]:
        path = kept_segment(self._folder, kind, step)
        return list(read_encoded(path)) if path.exists() else []

    def _check(self, plan: Plan, played: Sequence[Trajectory]) -> None:
        if self._learns and not played:
            path = kept_segment(self._folder, "step", plan.step)
            raise RunFolderError(
                f"the rollouts of step {plan.step} are gone: expected {path}. Restore it from a copy."
            )
        asked = {request.group_id: f"{request.env}/{request.task_id}" for request in plan.requests}
        other = [
            (t.group_id, found)
            for t in played
            if t.group_id in asked and asked[t.group_id] != (found := f"{name_of(t)}/{t.task_id}")
        ]
        if other:
            raise RunFolderError(
                f"step {plan.step} was played by another plan: group {other[0][0]!r} has task {other[0][1]!r}, "
                f"expected {asked[other[0][0]]!r}. Are the environment and ALE those that the run began with?"
            )

    def compared(self, kept: Path) -> tuple[int | None, tuple[str, ...]]:
        """Return how many tensors the checkpoint has, None if it is not kept, and which differ from the learner's."""
        if not kept.is_dir():
            return None, ()
        with tempfile.TemporaryDirectory() as here:
            self.learner.save(Path(here))
            names = sorted(
                {path.name for folder in (Path(here), kept) for path in folder.glob("*.safetensors")}
            )
            found = {name: (_tensors(Path(here) / name), _tensors(kept / name)) for name in names}
        apart = [
            f"{file}:{name}"
            for file, (ours, theirs) in found.items()
            for name in sorted({*ours, *theirs})
            if ours.get(name) != theirs.get(name)
        ]
        return sum(len({*ours, *theirs}) for ours, theirs in found.values()), tuple(apart)


def _tensors(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return each tensor's type, shape and bytes; of a file that is not there none."""
    if not path.exists():
        return {}
    return {name: (str(each.dtype), each.shape, each.tobytes()) for name, each in load_file(path).items()}
