"""The training loop, as prose. Every verb is explained in `trainer.run`.

Take the batch of the step's plan, sampled meanwhile (`rollout.mode=pipeline`, with versions `rollout.staleness` behind) or
then (`sync`), or the groups that are finished first (`stream`); learn, publish the next version. Departures from the paper
(docs/ipa.md section 7): each token is learned under its own version, so the split w·u is exact; imitation is gated to
anchors without success and annealed.
"""

from __future__ import annotations

from pathlib import Path

from agent_runtime.artifacts import folder_in
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.errors import ConfigError, Halted, Lost, OutageTooLong, Stopped
from trainer.files.folder import claimed, remove_unfinished
from trainer.live.events import RunEvent, hear
from trainer.metrics import Observer, RunSummary
from trainer.processes.fleet import Fleet
from trainer.run import Run
from trainer.run_state import SavedStates

__all__ = ["train"]

_MOST_IN_A_ROW = 3
"""How often a run starts its processes again before there is a further checkpoint."""


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
    was checkpointed stays intact and `resume=True` continues from it, bit for bit on CPU.
    """
    with claimed(run_folder):
        restarts, in_a_row, lost = 0, 0, ""
        while True:
            before = checkpoint.latest(run_folder / "checkpoints")
            try:
                return _from_there(
                    config,
                    run_folder,
                    ray_address,
                    observer,
                    resume=resume or restarts > 0,
                    restarts=restarts,
                )
            except Lost as error:
                newest = checkpoint.latest(run_folder / "checkpoints")
                in_a_row = 1 if newest != before else in_a_row + 1
                if in_a_row > _MOST_IN_A_ROW or observer.stop_requested:
                    raise
                restarts, lost = restarts + 1, str(error).partition(". ")[0]
                since = f"checkpoint {newest.name}" if newest else "its start"
                said = f"{lost}. All processes of the run are started again, and it goes on from {since}"
                hear(observer, RunEvent("fault", said))
            except ConfigError as error:
                if not restarts:
                    raise
                raise Halted(  # no setting is wrong: the run has begun with these
                    f"{lost}, and the run's processes cannot be started again: {error} What was saved before is intact: "
                    "continue with --resume."
                ) from error


def _from_there(
    config: TrainConfig,
    run_folder: Path,
    ray_address: str | None,
    observer: Observer,
    *,
    resume: bool,
    restarts: int,
) -> RunSummary | None:
    """Start all processes and train, with `resume` from the newest checkpoint."""
    observer.on_phase("start")
    found = None
    if resume:
        remove_unfinished(run_folder)
        found = SavedStates(
            run_folder
        ).newest()  # what cannot be resumed is said before anything heavy starts
    if observer.stop_requested:
        return None
    with (
        Fleet(config, ray_address, folder_in(run_folder)) as fleet,
        Run(config, run_folder, fleet, observer, resume=found or resume, restarts=restarts) as run,
    ):
        if restarts:
            hear(observer, RunEvent("recovery", "all processes of the run are back"))
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
