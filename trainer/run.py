"""The verbs of the training loop: one run, its folder and its state.

State that lasts is `RunState` and the anchor pool; everything else follows from configuration and step number. Nothing
here computes a gradient or talks to an environment: the fleet's actors do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from trainer import checkpoint, lineage
from trainer.checkpoint import Resumed
from trainer.config import TrainConfig
from trainer.copies.copying import Copies
from trainer.environments import key_of, open_environments
from trainer.evaluation import Evaluator
from trainer.files import digests
from trainer.files.finishing import Finishing
from trainer.files.folder import fill_whole, writing
from trainer.gathering import Gathering
from trainer.guard import Guard
from trainer.learners.rates import warmup_rate
from trainer.live.door import Door, name_of
from trainer.live.events import RunEvent, hear
from trainer.live.inside import stacks
from trainer.live.status import Status, status_of
from trainer.live.watch import Watch
from trainer.metrics import Evaluation, MetricsLog, Observer, RunSummary, write_summary
from trainer.processes.fleet import Fleet
from trainer.records import Records
from trainer.rollout.filling import account, rollout_metrics
from trainer.rollout.filtering import check_learned, nothing_learned
from trainer.rollout.planning import Planner
from trainer.rollout.pools import Pools
from trainer.rollout.report import fall, growth, step_metrics
from trainer.run_state import RunState, SavedStates, summary_of
from trainer.scheduler.beside import Beside
from trainer.scheduler.drawn import DrawnPlans, Moved
from trainer.scheduler.journal import Journal
from trainer.scheduler.outages import Outages, WaitingCalls
from trainer.scheduler.sampling import Batch, Scheduler
from trainer.scheduler.streaming import scheduler_of
from trainer.seeds import derive
from trainer.stopping import StopClock
from trainer.teaching import signal_metrics, starving
from trainer.timeline import BESIDE, Timeline

__all__ = ["Run"]


class Run:
    """One run. `with Run(...)` opens the folder and, on resume, the newest whole checkpoint, or the one that is given."""

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        fleet: Fleet,
        observer: Observer,
        *,
        resume: bool | Resumed,
        restarts: int = 0,
        states: SavedStates | None = None,
        copies: Copies | None = None,
    ) -> None:
        """`restarts` says how often processes were started again since the command began, and `states` are its own."""
        self._config, self._folder, self._fleet, self._observer = config, folder, fleet, observer
        self._environments = envs = open_environments(config)
        self._pools = Pools(config)
        self._planner = Planner(config, self._environments, self._pools, learns=fleet.learns_from_rollouts)
        self._state = RunState()
        self._resume, self._restarts = resume, restarts
        self._learn_metrics: dict[str, float] = {}
        self._outages = Outages(
            config,
            fleet.rock_answers,
            clock=time.monotonic,
            say=partial(hear, observer),
            is_stopping=lambda: observer.stop_requested,
        )
        self._evaluator = Evaluator(config, self._environments, fleet, self._outages)
        self._records = Records(folder)
        self._gathering = Gathering(config, folder, self._records, fleet, observer, envs, self._pools)
        self._beside = Beside(self._sampling)
        self._clock = StopClock(folder, lambda: observer.stop_requested)
        self._saving = Finishing()
        self._copies = copies or Copies(config.checkpoint, folder)
        self._known_states = states

    def __enter__(self) -> Run:
        with writing("records", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._states = self._known_states or SavedStates(self._folder)
        found = self._states.newest() if self._resume is True else self._resume or None
        stepping = found is not None and not found.state.epochs_left
        self._journal = Journal(self._folder, done=found.state.step if found and stepping else None)
        if found is not None:
            self._restore(found)
        elif self._resume:
            self._observer.on_log("nothing was saved yet: the run begins at its start")
        with writing("records", self._folder):
            state = self._state
            done = -state.epochs_left - 1 if state.epochs_left else state.step
            self._metrics = MetricsLog(
                self._folder,
                resume_step=done if found else None,
                again=self._measured_again(),
                observer=self._observer,
            )
        self._journal.begin([one for group in self._state.open_groups for one in group.ids])
        self._timeline = Timeline(self._folder, resume_step=done if found else None)
        self._guard = Guard(self._config, self._fleet, self._evaluator, self._metrics, self._state.references)
        self.is_new = found is None
        begun = lineage.read(self._folder) if found else None
        self._lineage = begun or lineage.begin(self._config, key_of(self._environments))
        lineage.write(self._folder, self._lineage)
        self._started = time.monotonic() - self._state.train_s
        self._live = ExitStack()
        self._fleet.waits = lambda what: self._timeline.wait(what, self._state.step)
        late_s = self._config.guard.late_s
        self._live.enter_context(Watch(self._timeline, self._status, self._say_late, least_s=late_s))
        door = self._live.enter_context(Door(name_of(self._folder), self._status))
        if door.why_not:
            self._observer.on_log(f"note: {door.why_not}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._live:  # last: whoever ends a run may wait, too
            try:
                self._saving.wait()
            except Exception as failed:
                if error is None:
                    raise
                self._observer.on_log(f"note: {failed}")
            finally:
                self._beside.close()
                self._journal.close()
                self._timeline.close()
                self._metrics.close()

    # -- before reinforcement learning ------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Return whether somebody wants the run to save and end. Asked wherever it can."""
        return self._clock.asked()

    def record_experts(self) -> None:
        """Gather the experts, hold some out, store them and fill the anchor pool."""
        self._state.epochs_left = self._gathering.epochs
        if not self._gathering.is_wanted:
            return
        with self._timeline.wait("having experts play", 0):
            experts = self._gathering.record()
        self._lineage.sources, self._lineage.experts = experts.sources, experts.records
        self._lineage.experts_digest = experts.digest
        lineage.write(self._folder, self._lineage)

    def warm_up(self) -> bool:
        """Imitate the experts for the epochs left, then publish version 0. Return False where a stop came between two."""
        config, warmup, epochs = self._config, self._config.warmup, self._gathering.epochs
        self._guard.begin()
        if self._state.epochs_left:
            self._observer.on_phase("warm-up")
        for epoch in range(epochs - self._state.epochs_left, epochs):
            if self.should_stop():
                return False
            metrics = self._imitate(warmup_rate(warmup, config.optim, epoch), "warm-up", epoch)
            metrics = {**metrics, **self._fleet.measure(), **self._guard.text()}
            self._metrics.write(epoch - epochs, "warmup", metrics)
            self._state.epochs_left = epochs - epoch - 1
            self._guard.check(metrics, rate="warmup.lr")
        self._fleet.publish(0)
        self._guard.end_warmup()
        return True

    def try_out(self) -> None:
        """Play a few rollouts of an environment that nobody installed. Raise `NothingToLearn` where that shows."""
        if not self._gathering.untried:
            return
        with self._timeline.wait("first tries", 0):
            self._gathering.try_out()
        self._fleet.engine_calls()  # were these rollouts'

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

    def batch(self, step: int) -> Batch:
        """Return the rollouts of the step's plan when they are in. Raise `Halted` where too many were rejected, and
        `RunFolderError` where meanwhile a checkpoint could not be written.

        With `rollout.mode=pipeline` they may be in already, and later plans are played while the step is learned; with
        `stream` they are of whatever plans finished first.
        """
        self._observer.on_phase("rollout")
        with self._timeline.wait("waiting for the batch", step):
            batch = self._beside.batch(step)
        self._saving.check()
        return batch

    def _sampling(self) -> Scheduler:
        drawn = DrawnPlans(self._config, self._planner, self._pools, self._state, self._records)
        return scheduler_of(
            self._config,
            WaitingCalls(self._fleet, self._outages),
            drawn,
            self._journal,
            done=self._state.step,
            begun=self._state.stream,
            clock=time.monotonic,
            span=self._timeline.span,
        )

    def learn(self, batch: Batch) -> None:
        """Update the parameters and account for every token."""
        self._observer.on_phase("learn")
        started = time.monotonic()
        config, state, plan, rollouts = self._config, self._state, batch.plan, batch.rollouts
        with self._timeline.span("learner", "learn", plan.step):
            if self._fleet.learns_from_rollouts:
                metrics = self._fleet.update(rollouts.encoded, plan.injections, lr=plan.lr, step=plan.step)
            else:
                metrics = self._imitate(plan.lr, "imitation", plan.step)
        metrics = account(state.ledger, metrics, rollouts, config, plan.step)
        state.empty_steps = 0 if metrics["updates"] else state.empty_steps + 1
        if state.empty_steps == 1:  # of several in a row
            self._observer.on_log(nothing_learned(plan.step, metrics))
        self._learn_metrics = {**metrics, **self._guard.text(), "learn_s": time.monotonic() - started}

    def _imitate(self, lr: float, *which: str | int) -> dict[str, float]:
        size, seed = self._config.warmup.batch_trajectories, derive(self._config.seed, *which)
        with self._timeline.wait("imitating", self._state.step):
            return self._fleet.imitate(lr=lr, batch_trajectories=size, seed=seed)

    def publish(self, step: int) -> None:
        """Make the new weights version `step`, for the inference engines to take, and count the step as done."""
        overlaps = self._config.rollout.overlaps
        with self._timeline.span("weights", "publish", step):
            self._fleet.publish(step, load=not overlaps)
        self._state.step = step
        if overlaps:
            self._beside.learned(step)

    def report(self, batch: Batch) -> None:
        """Count and log what the step did."""
        config, state, plan, rollouts = self._config, self._state, batch.plan, batch.rollouts
        self._beside.consumed(batch)
        self._timeline.add_calls(plan.step, self._fleet.engine_calls())
        state.env_steps += sum(len(t.env_turns) for t in rollouts.played)
        state.tokens += rollouts.tokens
        moved: Moved = batch.after
        moved.put_into(state)
        state.stream = batch.open
        metrics = {
            **step_metrics(rollouts.seen, moved.from_start, plan.anchors, self._planner.names),
            **signal_metrics(rollouts.seen),
            **rollout_metrics(rollouts, config),
            **self._learn_metrics,
            "lr": plan.lr * self._learn_metrics.get("lr_share", 1.0),
            "env_steps": float(state.env_steps),
            **moved.metrics,
            "train_s": time.monotonic() - self._started,
            **{f"time/{name}": share for name, share in self._fleet.time_shares().items()},
            **self._timeline.end_step(),
            **self._fleet.samplers(),
            **self._outages.metrics(),
            **self._copies.metrics(),
            "restarts": float(self._restarts),
        }
        for event in self._fleet.sampler_news():
            hear(self._observer, event)
        self._metrics.write(plan.step, "train", metrics)
        before, state.start_success = state.start_success, metrics.get("start_success", math.nan)
        if fell := fall(plan.step, before, state.start_success, len({t.group_id for t in moved.from_start})):
            self._observer.on_log(fell)
        if starves := starving(plan.step, metrics, state.signal):
            self._observer.on_log(starves)
        held_out = {} if self._fleet.learns_from_rollouts else self._measure_held_out(plan.step)
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
        """Write a checkpoint of the last finished step; it is on the disk when this returns. Raise `RunFolderError`."""
        self._save(beside=False)

    def save_steps(self) -> None:
        """Do so where steps have begun: what was before them is saved when the warm-up and its checks are through."""
        if self._beside.has_begun:
            self.save()

    def save_beside(self) -> None:
        """Begin a checkpoint of the last finished step, which is written while the run goes on (`trainer.checkpoint.begin`).

        One at a time: the one before is waited for. What it raises is raised by the next batch, save, or end of the run.
        """
        self._save(beside=True)

    def _save(self, *, beside: bool) -> None:
        if not self._beside.has_begun or not self._config.rollout.overlaps:
            self._state.anchors = self._pools.state()
        self._state.train_s = time.monotonic() - self._started
        step = self._state.step - self._state.epochs_left
        stream, folder = self._state.stream, self._folder / "checkpoints"
        with self._clock.saving() as saved, self._timeline.span("checkpoint", "save", step):
            self._saving.wait()
            with writing(f"checkpoint {step}", folder):
                write = self._states.begin(
                    step, self._state, engine=self._fleet.begin_save, options=self._config.checkpoint
                )

            def finish() -> None:
                with writing(f"checkpoint {step}", folder), self._timeline.span("checkpoint", BESIDE, step):
                    self._copies.add(write())
                    if stream:  # whose groups the checkpoint before needs
                        still = {group.number for group in stream.open}
                        self._records.forget_waiting(stream.groups, but=still)
                    saved()

            self._saving.begin(finish)
            if not beside:
                self._saving.wait()

    def finish(self) -> RunSummary:
        """Save, evaluate once more, export the model, and write the summary."""
        self.save()  # an evaluation may fail, and the steps are done
        final, said = self._evaluate(self._config.steps, whole=True)
        with writing("the model", self._folder), self._timeline.wait("exporting the model", self._state.step):
            fill_whole(self._folder / lineage.MODEL, digests.sealing(self._fleet.export))
        story, state = self._lineage, self._state
        story.steps, story.final_digest = state.step, lineage.digest_of(self._folder / lineage.MODEL)
        lineage.write(self._folder, story)
        summary = summary_of(
            self._config,
            state,
            story,
            final,
            said,
            train_s=time.monotonic() - self._started,
            time_shares=self._fleet.time_shares(),
            memory=self._fleet.memory(),
        )
        write_summary(self._folder, summary)
        return summary

    # -- inside -----------------------------------------------------------------------------------------------

    def _status(self, whole: bool = False) -> Status:
        """Say what goes on at this moment, `whole` with all stacks; asked from any thread."""
        status = status_of(
            self._timeline.running(),
            self._fleet.flights,
            self._fleet.samplers(),
            step=self._state.step,
            steps=self._config.steps,
            now_s=time.time(),
            processes=self._fleet.processes(whole),
        )
        if whole:
            status.stacks = stacks()
        return status

    def _say_late(self, said: str, logs: Sequence[str]) -> None:
        hear(self._observer, RunEvent("late", said, tuple(logs)))

    def _measured_again(self) -> list[tuple[str, int]]:
        """Return the (kind, step) of what a resumed run measures although the step is done and may have been measured."""
        first = [("eval", 0), ("held_out", 0)] if self.is_unmeasured else []
        ended = 0 < self._config.steps == self._state.step
        return [*first, *([("eval", self._config.steps)] if ended else [])]

    def _evaluate(self, step: int, *, whole: bool) -> tuple[Evaluation, dict[str, float]]:
        self._observer.on_phase("evaluate")
        options = self._config.eval
        count, apart = (options.tasks, options.apart) if whole else (options.progress_tasks, ())
        with self._timeline.wait("evaluating", step), self._beside.paused():
            self._fleet.show(step)
            with (
                self._timeline.span("evaluation", "evaluate all" if whole else "evaluate", step),
                self._records.kept_if_halted(),
            ):
                evaluation, encoded = self._evaluator.play(step, count, apart, sampled=whole)
            beside = self._guard.beside_evaluation()
            self._fleet.engine_calls()  # were the evaluation's
        self._records.write("eval", step, encoded)
        found = evaluation.metrics()
        values = {
            **found,
            **growth(found, self._state.eval_warmup if step else {}),
            **beside,
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
        metrics = self._evaluator.quiz(self._gathering.held_out)
        if metrics:
            self._metrics.write(step, "held_out", metrics)
        return metrics

    def _restore(self, found: Resumed) -> None:
        self._observer.on_phase("resume")
        for said in found.said:
            self._observer.on_log(said)
        self._state = state = found.state
        begun = lineage.read_of(self._folder, key_of(self._environments))
        self._pools.restore(self._state.anchors)
        with checkpoint.damaged(found.checkpoint):
            self._fleet.load(found.checkpoint)
        if begun is not None:
            self._gathering.check(begun)
        self._gathering.take()
        if not state.epochs_left:
            self._fleet.republish(state.step)
        self._records.forget_after(state.step, but=self._journal.kept())
        left = f"in the warm-up, {state.epochs_left} epochs left" if state.epochs_left else ""
        self._observer.on_log(f"resumed {left or f'after step {state.step}'}")
