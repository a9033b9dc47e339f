"""Before a run learns: its experts, played by oracles or read from records, and first tries of an own environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime.store import decode, encode, kept_segment, read_encoded
from agent_runtime.types import Trajectory
from rock_env.plugins import own
from trainer.config import TrainConfig, dealt
from trainer.environments import Environment, name_of
from trainer.errors import CheckpointError
from trainer.lineage import Lineage
from trainer.metrics import Observer
from trainer.models.chosen import learner_of
from trainer.processes.fleet import Fleet
from trainer.records import Records
from trainer.rollout.anchors import expert_from
from trainer.rollout.experts import HELD_OUT, Experts, hold_out, play_experts, read_experts
from trainer.rollout.failures import check_failures, check_first
from trainer.rollout.pools import Pools
from trainer.rollout.tasks import agent_of, expert_requests, task_ids, train_requests
from trainer.seeds import derive

__all__ = ["Gathering"]

_ORACLE_ATTEMPTS = 8
"""Tasks tried per expert wanted, before giving up on an oracle that cannot win."""
_TRIED = 5
"""Tasks that are played twice before anything is learned, where nobody installed the environment."""


class Gathering:
    """Where the experts of one run come from and go to."""

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        records: Records,
        fleet: Fleet,
        observer: Observer,
        environments: Sequence[Environment],
        pools: Pools,
    ) -> None:
        self._config, self._folder, self._fleet, self._observer = config, folder, fleet, observer
        self._environments, self._pools = environments, pools
        self._records = records
        self.held_out: list[Trajectory] = []

    @property
    def is_wanted(self) -> bool:
        """Return whether the run has experts."""
        return bool(self._config.warmup.data or self._config.warmup.trajectories)

    @property
    def epochs(self) -> int:
        """Of the warm-up; none without experts."""
        return self._config.warmup.epochs if self.is_wanted else 0

    def record(self) -> Experts:
        """Gather the experts, hold some out, store them and fill the anchor pool."""
        config = self._config
        self._observer.on_phase("experts")
        found = self._read() if config.warmup.data else self._play()
        seed = derive(config.seed, "held-out experts")
        experts, shown, held_out = hold_out(found, config.warmup.held_out, seed)
        for trajectory in shown:
            pool = self._pools.of(name_of(trajectory))
            pool.add(expert_from(trajectory, *experts.provenance(trajectory.id)))
        self._records.write("expert", None, [encode(trajectory) for trajectory in shown])
        self._records.write(HELD_OUT, None, [encode(trajectory) for trajectory in held_out])
        self.take()
        too_long = self._pools.too_long
        if too_long and config.anchors.scheduler != "none":
            self._observer.on_log(
                f"{too_long} of {len(self._pools)} experts take more than agent.max_turns={config.agent.max_turns} turns: "
                "no rollout starts on their way. Raise agent.max_turns where it should."
            )
        return experts

    @property
    def untried(self) -> list[Environment]:
        """Environments that nobody installed, for `try_out`. None where what is imitated, or rewarded, is not seen there."""
        if self.is_wanted or self._config.reward.routes or not self._fleet.learns_from_rollouts:
            return []
        return [each for each in self._environments if ("ale.envs", each.name) in own()]

    def try_out(self) -> None:
        """Play a few rollouts of what is `untried`. Raise `NothingToLearn` where that shows."""
        config = self._config
        spec, options = learner_of(config)
        context, longest = spec.template(config.model, options).max_context, config.sampling.max_tokens
        for env in self.untried:
            tasks = task_ids(env.source, env.config.train_split, _TRIED, derive(config.seed, "first tries"))
            asked = train_requests(env.config, env.params.canonical(), 0, tasks=tasks)
            tries = [decode(data) for data in self._fleet.run([each for each in asked if each.index < 2], 0)]
            if said := check_first(
                tries, context=context, longest=longest, fresh=config.model == config.engine
            ):
                self._observer.on_log(f"note: {said}")

    def take(self) -> None:
        """Give the learner the experts that this run keeps."""
        kept = [kept_segment(self._folder, kind) for kind in ("expert", HELD_OUT)]
        shown, held_out = (list(read_encoded(path)) if path.exists() else [] for path in kept)
        self.held_out = [decode(data) for data in held_out]
        self._fleet.take_experts(shown, held_out)

    def check(self, begun: Lineage) -> None:
        """Raise `CheckpointError` where experts that the run took are gone: it would go on as if it had none."""
        for kind, held_out in (("expert", False), (HELD_OUT, True)):
            path = kept_segment(self._folder, kind)
            if any(expert.held_out is held_out for expert in begun.experts) and not path.is_file():
                raise CheckpointError(
                    f"{path} is gone, with experts of this run: put it back, or start another run with --run NAME."
                )

    def _play(self) -> Experts:
        """Let each environment's oracle play until as many trajectories succeeded as its share is, but at least one."""
        counts = dealt(self._config.shares, 0, self._config.warmup.trajectories)
        return Experts.joined([self._play_in(env, max(1, counts[env.name])) for env in self._environments])

    def _play_in(self, env: Environment, wanted: int) -> Experts:
        seed = derive(self._config.seed, "expert tasks")
        tasks = task_ids(env.source, self._config.train_split, wanted * _ORACLE_ATTEMPTS, seed)
        requests = expert_requests(env.config, env.params.canonical(), tasks, label=env.label)
        with self._records.kept_if_halted():
            return play_experts(
                self._fleet.record,
                requests,
                wanted=wanted,
                env=env.spec.key,
                check=self._check_failures,
                said=self._observer.on_log,
            )

    def _read(self) -> Experts:
        """Take the experts from records, in this model's tokens."""
        config = self._config
        engine, options = learner_of(config)
        return read_experts(
            config.warmup.data,
            environments=self._environments,
            split=config.train_split,
            template=engine.template(config.model, options),
            agent=agent_of(config),
            max_tokens=config.sampling.max_tokens,
        )

    def _check_failures(self, trajectories: Sequence[Trajectory]) -> None:
        share = self._config.rollout.max_failure_rate
        check_failures(trajectories, max_share=share, server_end=self._fleet.server_end)
