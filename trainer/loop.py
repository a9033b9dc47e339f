"""The training loop, as prose. Every verb is explained in `trainer.run`.

Take the batch of the step's plan, sampled meanwhile (`rollout.mode=pipeline`, with versions `rollout.staleness` behind) or
then (`sync`), or the groups that are finished first (`stream`); learn, publish the next version. Departures from the paper
(docs/ipa.md section 7): each token is learned under its own version, so the split w·u is exact; imitation is gated to
anchors without success and annealed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from agent_runtime.artifacts import folder_in
from rock_env.errors import RockError
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.copies.copying import Copies
from trainer.errors import Halted, Lost, OutageTooLong, Stopped, TrainerError
from trainer.files.folder import claimed, remove_unfinished
from trainer.live.events import RunEvent, hear
from trainer.live.status import lasting
from trainer.metrics import Observer, RunSummary
from trainer.processes.fleet import Fleet
from trainer.run import Run
from trainer.run_state import SavedStates

__all__ = ["train"]

_MOST_IN_A_ROW = 3
"""How often a run starts its processes again before there is a further checkpoint."""
_AGAIN_S, _LOOK_S = 30.0, 0.5
"""Between two tries to start them where a cluster or a ROCK server has to come back, and two looks whether to stop."""


def train(
    config: TrainConfig,
    run_folder: Path,
    *,
    observer: Observer,
    resume: bool = False,
    ray_address: str | None = None,
) -> RunSummary | None:
    """Train as `config` says and leave everything in `run_folder`.

    Return the summary, or None when the observer asked to stop (the state is saved then). Where a process of the run dies
    all are started again, and the run goes on from its newest checkpoint. Raise `TrainerError` or `RockError`; whatever
    was checkpointed stays intact and `resume=True` continues from it, bit for bit on CPU (`optim.threads=1`).
    """
    with (
        claimed(run_folder),
        Copies(config.checkpoint, run_folder, partial(hear, observer), resume) as copies,
    ):
        states, restarts, in_a_row, lost, seen = SavedStates(run_folder), 0, 0, "", set[str]()
        while True:
            observer.on_phase("start")
            found = None
            if resume or restarts:
                remove_unfinished(run_folder)
                found = states.newest()  # what cannot be resumed is said before anything heavy starts
            if observer.stop_requested:
                return None
            try:
                with (
                    _started(config, run_folder, ray_address, observer, lost) as fleet,
                    Run(
                        config,
                        run_folder,
                        fleet,
                        observer,
                        states=states,
                        resume=found or resume or restarts > 0,
                        restarts=restarts,
                        copies=copies,
                    ) as run,
                ):
                    if restarts:
                        hear(observer, RunEvent("recovery", "all processes of the run are back"))
                    return _to_end(run)
            except Stopped:
                return None
            except Lost as error:
                newest = checkpoint.latest(run_folder / "checkpoints")
                in_a_row = in_a_row + 1 if not newest or newest.name in seen else 1
                if in_a_row > _MOST_IN_A_ROW or observer.stop_requested:
                    raise
                seen |= {newest.name} if newest else set()
                restarts, lost = restarts + 1, str(error).partition(". ")[0].rstrip(".")
                since = f"checkpoint {newest.name}" if newest else "its start"
                said = f"{lost}. All processes of the run are started again, and it goes on from {since}"
                hear(observer, RunEvent("fault", said))


@contextmanager
def _started(
    config: TrainConfig, run_folder: Path, ray_address: str | None, observer: Observer, lost: str
) -> Iterator[Fleet]:
    """Start all processes. Where they ran before, what is away (machines, ROCK) is waited for, `rollout.outage_s` at most.

    `lost` says which of them died; empty: they are started for the first time.
    """
    until, is_said = time.monotonic() + config.rollout.outage_s, False
    with ExitStack() as stack:
        while True:
            fleet = Fleet(config, ray_address, folder_in(run_folder))
            try:
                stack.enter_context(fleet)
                break
            except (TrainerError, RockError) as error:
                if not lost:
                    if isinstance(error, Lost):  # what does not start at all would not do so the next time
                        raise Halted(str(error)) from error
                    raise
                if observer.stop_requested:
                    raise Stopped("the run was to stop before its processes were back") from error
                if time.monotonic() >= until:
                    raise Halted(  # no setting is wrong: the run has begun with these
                        f"{lost}, and the run's processes cannot be started again: {error} What was saved before is "
                        "intact: continue with --resume."
                    ) from error
                if not is_said:
                    tried = f"they are tried again for {lasting(config.rollout.outage_s)} (rollout.outage_s)"
                    hear(
                        observer,
                        RunEvent("fault", f"the run's processes cannot be started yet, {tried}: {error}"),
                    )
                    is_said = True
            again = time.monotonic() + _AGAIN_S
            while time.monotonic() < again and not observer.stop_requested:
                time.sleep(_LOOK_S)
        yield fleet


def _to_end(run: Run) -> RunSummary | None:
    try:
        return _train(run)
    except OutageTooLong:
        run.save_steps()
        raise
    except Stopped:
        run.save_steps()
        return None


def _train(run: Run) -> RunSummary | None:
    if run.is_new:
        if run.should_stop():
            return None
        run.record_experts()
    if run.is_warming_up:
        warmed_up = run.warm_up()
        if warmed_up:
            run.try_out()
        run.save()
        if not warmed_up:
            return None
    if run.is_unmeasured and not run.should_stop():
        run.evaluate_warmup()
    for step in run.remaining_steps():
        if run.should_stop():
            run.save()
            return None
        batch = run.batch(step)
        run.learn(batch)
        run.publish(step)
        run.report(batch)
        if run.should_stop():
            run.save()  # an evaluation may take longer than who stops a run waits
        if run.is_evaluation_due(step):
            run.evaluate(step)
        if run.is_checkpoint_due(step):
            run.save_beside()
    if run.should_stop():
        run.save()
        return None
    return run.finish()
