"""The verbs of the training loop: one run, its folder and its state.

State that lasts is `RunState` and the anchor pool; everything else follows from configuration and step number. Nothing
here computes a gradient or talks to an environment: the fleet's actors do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from agent_runtime.errors import StoreWriteFailed
from agent_runtime.store import decode, encode, kept_segment, read_encoded, segment_path, write_segment
from agent_runtime.types import RolloutRequest, Trajectory
from trainer import checkpoint, digests, lineage
from trainer.checkpoint import Resumed
from trainer.config import TrainConfig, dealt
from trainer.environments import Environment, key_of, name_of, open_environments
from trainer.errors import CheckpointError, Halted, RunFolderError
from trainer.evaluation import Evaluator
from trainer.folder import fill_whole, writing
from trainer.guard import Guard
from trainer.learners.rates import warmup_rate
from trainer.metrics import (
    Evaluation,
    MetricsLog,
    Observer,
    RunSummary,
    share_of,
    write_summary,
)
from trainer.models.chosen import learner_of
from trainer.processes.placement import Fleet
from trainer.rollout.anchors import expert_from
from trainer.rollout.experts import HELD_OUT, Experts, hold_out, play_experts, read_experts
from trainer.rollout.failures import check_failures
from trainer.rollout.filling import Rollouts, account, fill, filter_metrics
from trainer.rollout.filtering import check_learned, nothing_learned
from trainer.rollout.planning import Plan, Planner, Rates
from trainer.rollout.pools import Pools
from trainer.rollout.report import (
    agent_metrics,
    env_metrics,
    fall,
    fault_metrics,
    growth,
    start_metrics,
    summary_metrics,
)
from trainer.rollout.tasks import agent_of, expert_requests, task_ids
from trainer.run_state import RunState, SavedStates
from trainer.seeds import derive
from trainer.stopping import StopClock

__all__ = ["Run"]

_HALTED = "halted"  # kind of the file with what was played where that halted the run
_ORACLE_ATTEMPTS = 8  # tasks tried per expert wanted, before giving up on an oracle that cannot win


class Run:
    """One run. `with Run(...)` opens the folder and, on resume, the newest whole checkpoint, or the one that is given."""

    def __init__(
        self, config: TrainConfig, folder: Path, fleet: Fleet, observer: Observer, *, resume: bool | Resumed
    ) -> None:
        self._config, self._folder, self._fleet, self._observer = config, folder, fleet, observer
        self._environments = open_environments(config)
        self._pools = Pools(config)
        self._planner = Planner(config, self._environments, self._pools, learns=fleet.learns_from_rollouts)
        self._state = RunState()
        self._resume = resume
        self._learn_metrics: dict[str, float] = {}
        self._evaluator = Evaluator(config, self._environments, fleet)
        self._held_out: list[Trajectory] = []
        self._clock = StopClock(folder, lambda: observer.stop_requested)

    def __enter__(self) -> Run:
        with writing("records", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._states = SavedStates(self._folder)
        found = self._states.newest() if self._resume is True else self._resume or None
        if found is not None:
            self._restore(found)
        elif self._resume:
            self._observer.on_log("nothing was saved yet: the run begins at its start")
        with writing("records", self._folder):
            state = self._state
            done = -state.epochs_left - 1 if state.epochs_left else state.step
            self._metrics = MetricsLog(
                self._folder, resume_step=done if found else None, again=self._measured_again()
            )
        self._guard = Guard(self._config, self._fleet, self._evaluator, self._metrics, self._state.references)
        self.is_new = found is None
        key = key_of(self._environments)
        begun = lineage.begin(self._config, key) if found is None else lineage.read(self._folder)
        self._lineage = begun or lineage.begin(self._config, key)
        lineage.write(self._folder, self._lineage)
        self._started = time.monotonic() - self._state.train_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metrics.close()

    # -- before reinforcement learning ------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Return whether somebody wants the run to save and end. Asked wherever it can."""
        return self._clock.asked()

    def record_experts(self) -> None:
        """Gather the experts, hold some out, store them and fill the anchor pool."""
        config = self._config
        self._state.epochs_left = self._warmup_epochs
        if not (config.warmup.data or config.warmup.trajectories):
            return
        self._observer.on_phase("experts")
        found = self._read_experts() if config.warmup.data else self._play_experts()
        seed = derive(config.seed, "held-out experts")
        experts, shown, held_out = hold_out(found, config.warmup.held_out, seed)
        for trajectory in shown:
            pool = self._pools.of(name_of(trajectory))
            pool.add(expert_from(trajectory, *experts.provenance(trajectory.id)))
        self._write("expert", None, [encode(trajectory) for trajectory in shown])
        self._write(HELD_OUT, None, [encode(trajectory) for trajectory in held_out])
        self._take_experts()
        too_long = self._pools.too_long
        if too_long and config.anchors.scheduler != "none":
            self._observer.on_log(
                f"{too_long} of {len(self._pools)} experts take more than agent.max_turns={config.agent.max_turns} turns: "
                "no rollout starts on their way. Raise agent.max_turns where it should."
            )
        self._lineage.sources, self._lineage.experts = experts.sources, experts.records
        self._lineage.experts_digest = experts.digest
        lineage.write(self._folder, self._lineage)

    def _play_experts(self) -> Experts:
        """Let each environment's oracle play until as many trajectories succeeded as its share is, but at least one."""
        counts = dealt(self._config.shares, 0, self._config.warmup.trajectories)
        return Experts.joined(
            [self._play_experts_of(env, max(1, counts[env.name])) for env in self._environments]
        )

    def _play_experts_of(self, env: Environment, wanted: int) -> Experts:
        seed = derive(self._config.seed, "expert tasks")
        tasks = task_ids(env.source, self._config.train_split, wanted * _ORACLE_ATTEMPTS, seed)
        requests = expert_requests(env.config, env.params.canonical(), tasks, label=env.label)
        with self._stored_if_halted():
            return play_experts(
                self._fleet.record,
                requests,
                wanted=wanted,
                env=env.spec.key,
                check=self._check_failures,
                said=self._observer.on_log,
            )

    def _read_experts(self) -> Experts:
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

    def _take_experts(self) -> None:
        """Give the learner the experts that this run keeps."""
        kept = [kept_segment(self._folder, kind) for kind in ("expert", HELD_OUT)]
        shown, held_out = (list(read_encoded(path)) if path.exists() else [] for path in kept)
        self._held_out = [decode(data) for data in held_out]
        self._fleet.take_experts(shown, held_out)

    def warm_up(self) -> bool:
        """Imitate the experts for the epochs left, then publish version 0. Return False where a stop came between two."""
        config, warmup, epochs = self._config, self._config.warmup, self._warmup_epochs
        self._guard.begin()
        if self._state.epochs_left:
            self._observer.on_phase("warm-up")
        for epoch in range(epochs - self._state.epochs_left, epochs):
            if self.should_stop():
                return False
            metrics = self._fleet.imitate(
                lr=warmup_rate(warmup, config.optim, epoch),
                batch_trajectories=warmup.batch_trajectories,
                seed=derive(self._config.seed, "warm-up", epoch),
            )
            metrics = {**metrics, **self._fleet.measure(), **self._guard.text()}
            self._metrics.write(epoch - epochs, "warmup", metrics)
            self._state.epochs_left = epochs - epoch - 1
            self._guard.check(metrics, rate="warmup.lr")
        self._fleet.publish(0)
        self._guard.end_warmup()
        return True

    @property
    def is_warming_up(self) -> bool:
        """Return whether the steps have not begun: the run is new, or was stopped in its warm-up."""
        return self.is_new or self._state.epochs_left > 0

    @property
    def is_unmeasured(self) -> bool:
        """Return whether it is not known where the steps start: the warm-up is saved before it is evaluated."""
        return math.isnan(self._state.success_warmup)

    def evaluate_warmup(self) -> None:
        """Measure where the steps start."""
        self._measure_held_out(0)
        found, self._state.eval_warmup = self._evaluate(0, whole=True)
        self._state.success_warmup, self._state.apart_warmup = found.success, dict(found.apart)
        self._state.envs_warmup = {env: own.success for env, own in found.envs.items()}

    # -- the step ---------------------------------------------------------------------------------------------

    def remaining_steps(self) -> Iterator[int]:
        """Yield the steps still to do, 1-based."""
        return iter(range(self._state.step + 1, self._config.steps + 1))

    def plan(self, step: int) -> Plan:
        """Draw anchors and tasks. A pure function of configuration, step and the run's state."""
        self._observer.on_phase("rollout")
        return self._planner.plan(step, self._rates)

    def roll_out(self, plan: Plan) -> Rollouts:
        """Run the step's rollouts until its batch is full, store them, and halt where too many were rejected.

        With `rollout.staleness` the engines sample with older weights until the next `publish`.
        """
        config, step = self._config, plan.step
        if config.rollout.staleness:
            self._fleet.serve_older(config.rollout.staleness)

        def more(first: int, envs: Sequence[str], used: Collection[tuple[str, str]]) -> list[RolloutRequest]:
            return self._planner.more(step, first, envs, used, self._rates)

        with self._stored_if_halted():
            rollouts = fill(
                self._fleet,
                self._folder,
                plan.requests,
                step,
                config=config,
                anchored=plan.anchors,
                more=more,
            )
        self._write("step", step, rollouts.encoded)
        self._write("set_aside", step, [sample.encoded for sample in rollouts.set_aside])
        return rollouts

    def learn(self, plan: Plan, rollouts: Rollouts) -> None:
        """Update the parameters, account for every token, then move the anchors."""
        self._observer.on_phase("learn")
        started = time.monotonic()
        config, state = self._config, self._state
        if self._learns_from_rollouts:
            metrics = self._fleet.update(rollouts.encoded, plan.injections, lr=plan.lr, step=plan.step)
        else:
            metrics = self._fleet.imitate(
                lr=plan.lr,
                batch_trajectories=config.warmup.batch_trajectories,
                seed=derive(config.seed, "imitation", plan.step),
            )
        metrics = account(state.ledger, metrics, rollouts, config)
        state.empty_steps = 0 if metrics["updates"] else state.empty_steps + 1
        if state.empty_steps:
            self._observer.on_log(nothing_learned(plan.step, metrics))
        self._learn_metrics = {**metrics, **self._guard.text(), "learn_s": time.monotonic() - started}
        self._planner.observe_anchors(plan, rollouts.seen)

    def publish(self, step: int) -> None:
        """Bring the new weights to the inference engines as version `step` and count the step as done."""
        self._fleet.publish(step)
        self._state.step = step

    def report(self, plan: Plan, rollouts: Rollouts) -> None:
        """Count and log what the step did."""
        config, state = self._config, self._state
        turns, tokens = sum(len(t.turns) for t in rollouts.played), rollouts.tokens
        state.env_steps += sum(len(t.env_turns) for t in rollouts.played)
        state.tokens += tokens
        from_start = self._planner.observe_tasks(plan, rollouts.seen, self._rates)
        metrics = {
            **summary_metrics(rollouts.seen),
            **{f"start_{name}": value for name, value in summary_metrics(from_start).items()},
            **env_metrics(self._planner.names, rollouts.seen, from_start),
            **start_metrics(rollouts.seen, plan.anchors),
            **agent_metrics(rollouts.seen),
            **fault_metrics(rollouts.played),
            **filter_metrics(rollouts, config),
            **self._learn_metrics,
            **rollouts.reward_metrics,
            "rollout_s": rollouts.duration_s,
            "turns_per_s": turns / rollouts.duration_s,
            "tokens_per_s": tokens / rollouts.duration_s,
            "lr": plan.lr,
            "env_steps": float(state.env_steps),
            **self._pools.metrics(),
            "train_s": time.monotonic() - self._started,
            **{f"time/{name}": share for name, share in self._fleet.time_shares().items()},
        }
        self._metrics.write(plan.step, "train", metrics)
        before, state.start_success = state.start_success, metrics.get("start_success", math.nan)
        if fell := fall(plan.step, before, state.start_success, len({t.group_id for t in from_start})):
            self._observer.on_log(fell)
        held_out = {} if self._learns_from_rollouts else self._measure_held_out(plan.step)
        self._observer.on_step(plan.step, config.steps, {**metrics, **held_out})
        self._guard.check(metrics, rate="optim.lr")
        check_learned(plan.step, metrics, state.empty_steps, config.filter)

    # -- observation ------------------------------------------------------------------------------------------

    def is_evaluation_due(self, step: int) -> bool:
        """Return whether a progress evaluation follows this step (the last one has its own)."""
        every = self._config.eval.every
        return bool(every) and step % every == 0 and step != self._config.steps

    def evaluate(self, step: int) -> None:
        """Evaluate on a few held-out tasks."""
        self._evaluate(step, whole=False)

    def is_checkpoint_due(self, step: int) -> bool:
        """Return whether this step is saved."""
        return step % self._config.checkpoint.every == 0

    def save(self) -> None:
        """Write a checkpoint of the last finished step."""
        self._state.anchors = self._pools.state()
        self._state.train_s = time.monotonic() - self._started
        step = self._state.step - self._state.epochs_left
        with writing(f"checkpoint {step}", self._folder / "checkpoints"), self._clock.saving():
            self._states.save(step, self._state, engine=self._fleet.save, keep=self._config.checkpoint.keep)

    def finish(self) -> RunSummary:
        """Save, evaluate once more, export the model, and write the summary."""
        self.save()  # an evaluation may fail, and the steps are done
        final, said = self._evaluate(self._config.steps, whole=True)
        with writing("the model", self._folder):
            fill_whole(self._folder / lineage.MODEL, digests.sealing(self._fleet.export))
        state, config, story = self._state, self._config, self._lineage
        story.steps, story.final_digest = state.step, lineage.digest_of(self._folder / lineage.MODEL)
        lineage.write(self._folder, story)
        summary = RunSummary(
            env=config.env,
            algo=config.algo,
            seed=config.seed,
            success_warmup=state.success_warmup,
            success_final=final.success,
            optimum=final.optimum,
            share_warmup=share_of(state.success_warmup, final.optimum),
            share_final=final.share,
            train_s=time.monotonic() - self._started,
            env_steps=state.env_steps,
            tokens=state.tokens,
            steps=state.step,
            apart_warmup=state.apart_warmup,
            apart_final=final.apart,
            envs_warmup=state.envs_warmup,
            envs_final={env: own.success for env, own in final.envs.items()},
            time_shares=self._fleet.time_shares(),
            memory=self._fleet.memory(),
            parent=story.parent.run if story.parent else "",
            model_digest=story.final_digest,
            experts_digest=story.experts_digest,
            ledger=state.ledger,
            eval_warmup=state.eval_warmup,
            eval_final=said,
        )
        write_summary(self._folder, summary)
        return summary

    # -- inside -----------------------------------------------------------------------------------------------

    def _measured_again(self) -> list[tuple[str, int]]:
        """Return the (kind, step) of what a resumed run measures although the step is done and may have been measured."""
        first = [("eval", 0), ("held_out", 0)] if self.is_unmeasured else []
        ended = 0 < self._config.steps == self._state.step
        return [*first, *([("eval", self._config.steps)] if ended else [])]

    @property
    def _rates(self) -> Rates:
        return self._state.rates(self._planner.names)

    @property
    def _learns_from_rollouts(self) -> bool:
        return self._fleet.learns_from_rollouts

    def _evaluate(self, step: int, *, whole: bool) -> tuple[Evaluation, dict[str, float]]:
        self._observer.on_phase("evaluate")
        options = self._config.eval
        count, apart = (options.tasks, options.apart) if whole else (options.progress_tasks, ())
        with self._stored_if_halted():
            evaluation, encoded = self._evaluator.play(step, count, apart, sampled=whole)
        self._write("eval", step, encoded)
        found = evaluation.metrics()
        values = {
            **found,
            **growth(found, self._state.eval_warmup if step else {}),
            **self._guard.beside_evaluation(),
            "env_steps": float(self._state.env_steps),
            "train_s": time.monotonic() - self._started,
        }
        self._metrics.write(step, "eval", values)
        self._observer.on_eval(evaluation)
        if forgets := self._guard.forgetting(values, step=step):
            self._observer.on_log(forgets)
        self._guard.check_evaluation(values, step=step)
        return evaluation, values

    def _measure_held_out(self, step: int) -> dict[str, float]:
        """Log how well the published model does what the experts held out did; nothing where none is."""
        metrics = self._evaluator.quiz(self._held_out)
        if metrics:
            self._metrics.write(step, "held_out", metrics)
        return metrics

    def _check_failures(self, trajectories: Sequence[Trajectory]) -> None:
        share = self._config.rollout.max_failure_rate
        check_failures(trajectories, max_share=share, server_end=self._fleet.server_end)

    @contextmanager
    def _stored_if_halted(self) -> Iterator[None]:
        """Store what had been played where it halts the body, until a later attempt does not."""
        path = segment_path(self._folder, _HALTED)
        try:
            yield
        except Halted as halted:
            if not halted.rollouts:
                raise
            self._write(_HALTED, None, halted.rollouts)
            raise Halted(f"{halted} What was played: `ale replay show {path}`.") from halted
        with writing("records", self._folder):
            path.unlink(missing_ok=True)

    def _write(self, kind: str, step: int | None, encoded: Sequence[bytes]) -> None:
        path = segment_path(self._folder, kind, step)
        if not encoded:
            return
        try:
            write_segment(path, encoded)
        except StoreWriteFailed as error:
            raise RunFolderError(f"{error} A training run continues with --resume.") from error

    @property
    def _warmup_epochs(self) -> int:
        warmup = self._config.warmup
        return warmup.epochs if warmup.data or warmup.trajectories else 0

    def _check_experts(self, begun: lineage.Lineage) -> None:
        """Raise `CheckpointError` where experts that the run took are gone: it would go on as if it had none."""
        for kind, held_out in (("expert", False), (HELD_OUT, True)):
            path = kept_segment(self._folder, kind)
            if any(expert.held_out is held_out for expert in begun.experts) and not path.is_file():
                raise CheckpointError(
                    f"{path} is gone, with experts of this run: put it back, or start another run with --run NAME."
                )

    def _restore(self, found: Resumed) -> None:
        self._observer.on_phase("resume")
        for said in found.said:
            self._observer.on_log(said)
        self._state = state = found.state
        begun = lineage.read(self._folder)
        key = key_of(self._environments)
        if begun is not None and begun.env != key:
            raise CheckpointError(
                f"the run began in {begun.env}, but {key} is installed: its experts and the successes it kept "
                "may mean something else here. Install the version it began with, or start a new run."
            )
        self._pools.restore(self._state.anchors)
        with checkpoint.damaged(found.checkpoint):
            self._fleet.load(found.checkpoint)
        if begun is not None:
            self._check_experts(begun)
        self._take_experts()
        if not state.epochs_left:
            self._fleet.publish(state.step)
        with writing("records", self._folder):
            for path in (self._folder / "trajectories").glob("*-[0-9]*.traj"):
                if int(path.stem.rpartition("-")[2]) > state.step:
                    path.unlink()  # belongs to steps that will be done again
        self._observer.on_log(
            f"resumed in the warm-up, {state.epochs_left} epochs left"
            if state.epochs_left
            else f"resumed after step {state.step}"
        )
