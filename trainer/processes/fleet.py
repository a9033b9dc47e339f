"""The processes of one run, called. The loop's only door to other processes; `placement` starts what is called here.

It forwards; it decides nothing about learning.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from agent_runtime.policy import Completion, PolicyError, SampleRequest
from agent_runtime.types import RolloutRequest
from rock_env.errors import InvalidArgument
from rock_env.local import EmbeddedServer
from trainer.config import TrainConfig
from trainer.errors import Halted, Lost
from trainer.live.door import ask_actor
from trainer.live.events import RunEvent
from trainer.live.status import Flights, ProcessStatus
from trainer.models.chosen import check_files, memory_of
from trainer.processes.accounts import Accounts, most_bytes, processor_s
from trainer.processes.hosting import answers, check_rock, rock_of
from trainer.processes.placement import Placed, connect_ray, place
from trainer.processes.ray_errors import answer_of, result_of
from trainer.processes.serving import Published, Replacing, Serving
from trainer.protocols.memory import Part
from trainer.reward.router import Rewarded
from trainer.rollout.starts import Injection
from trainer.samplers.proof import Digests

__all__ = ["Fleet"]


class Fleet:
    """The processes of one run. `with Fleet(...) as fleet:` starts them all and stops what it started."""

    _at: Placed
    _rock_address: str
    _accounts: Accounts
    _serving: Serving

    def __init__(self, config: TrainConfig, ray_address: str | None, artifacts: Path | None = None) -> None:
        """Take the folder where artifacts of rollouts are kept, on the machines of the workers; None: they are not."""
        self._config = _from_anywhere(config)
        self._artifacts = str(artifacts.absolute()) if artifacts else ""
        self._ray_address = ray_address
        self._stack = ExitStack()
        self._server: EmbeddedServer | None = None
        self.slots = [config.rollout.concurrency] * config.rollout.workers
        """Most rollouts that each worker runs at once."""
        self.flights = Flights()
        self.waits: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        """Told of what is waited for beside the rollouts, in the body; whoever watches the run sets it."""
        self.learns_from_rollouts = True
        """Whether the algorithm needs training rollouts at all."""

    def __enter__(self) -> Fleet:
        check_files(self._config.model)
        shelf = check_rock(self._config)
        with ExitStack() as stack:
            connect_ray(self._config, self._ray_address, stack)
            self._rock_address, self._server = rock_of(self._config, shelf, stack)
            self._at = place(self._config, self._rock_address, self._artifacts, stack)
            self._serving = stack.enter_context(self._samplers())
            self._accounts = Accounts()
            self.time_shares()
            self.learns_from_rollouts = bool(result_of(self._at.learner.learns_from_rollouts.remote()))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def server_end(self) -> str:
        """Say how the embedded ROCK server ended; empty while it runs, and for a server that is not ours."""
        return self._server.end if self._server else ""

    async def rock_answers(self) -> bool:
        """Return whether the ROCK server takes calls, if there is one. The run's own is started again where it ended."""
        return not self._rock_address or await answers(self._rock_address, self._server)

    def time_shares(self) -> dict[str, float]:
        """Return where the processors' time went since the start; empty where processes are on other machines."""
        if self._ray_address:
            return {}
        try:
            return self._accounts.shares(
                processor_s(
                    policy=self._at.pids[: self._at.policies],
                    service=[os.getpid(), *self._at.pids[self._at.policies :]],
                    server=self._server.pid if self._server else None,
                )
            )
        except OSError:
            return {}

    def memory(self) -> dict[str, dict[str, int]]:
        """Return by role what a process was estimated to take (`estimated`, bytes), and the most that one had (`taken`).

        The latter is known of roles on a processor of this machine. A learner is estimated with the largest pass that it
        had (`tokens`). Empty where the engine works nothing out.
        """
        part: Part | None = result_of(self._at.learner.largest_part.remote())
        try:
            roles = memory_of(self._config, part)
        except InvalidArgument:  # the model is on another machine
            return {}
        found = {role.name: {"estimated": role.resident} for role in roles}
        if part and "learner" in found:
            found["learner"]["tokens"] = part.tokens
        if "reference" in found and not self._config.placement.reference:  # in the learner's process
            found["learner"]["estimated"] += found["reference"]["estimated"]
        here = {role.name for role in roles if role.device == "cpu" and not self._ray_address}
        for name, pids in (
            ("learner", self._at.pids[:1]),
            ("sampler", self._at.pids[1 : 1 + len(self._at.engines)]),
        ):
            if name in here:
                with suppress(OSError):
                    found[name]["taken"] = most_bytes(pids)
        return found

    # -- rollouts ---------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        """Run rollouts on all workers; return encoded trajectories in the order of the requests."""
        return self._spread("run", requests, policy_step)

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        """Run rollouts on one worker, and rejected ones again; return all attempts at each, the one that counts last."""
        with self.flights.of(worker, [request.id for request in requests]):
            played: list[list[bytes]] = await answer_of(
                self._at.workers[worker].play.remote(requests, policy_step)
            )
        return played

    def engine_calls(self) -> list[list[tuple[float, float]]]:
        """Return by worker when calls of its engine were under way since this was asked last, in Unix seconds."""
        calls: list[list[tuple[float, float]]] = result_of(
            [worker.engine_calls.remote() for worker in self._at.workers]
        )
        return calls

    def record(self, requests: Sequence[RolloutRequest]) -> list[bytes]:
        """Let the oracle play the requests."""
        return self._spread("record", requests)

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Let the reward workers judge trajectories, in order; without any, give back the same bytes.

        Their answers are kept in `run_folder`, an absolute path.
        """
        if self._at.rewarder is None or not encoded:
            return Rewarded(list(encoded))
        with self.waits("waiting for the reward workers"):
            rewarded: Rewarded = await answer_of(self._at.rewarder.reward.remote(list(encoded), run_folder))
        return rewarded

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer single prompts, in order, with the published weights."""
        try:
            return self._serving.asked(self._serving.sample(requests)).result()
        except PolicyError as error:
            raise Halted(f"{error} What was saved before is intact: continue with --resume.") from error

    def samplers(self) -> dict[str, float]:
        """Return how many samplers were lost and came back, and how many there are; empty where the loss of one halts."""
        return self._serving.counts()

    def sampler_news(self) -> list[RunEvent]:
        """Return which samplers were lost and came back since this was asked last."""
        return self._serving.news()

    def processes(self, whole: bool) -> list[ProcessStatus]:
        """Return what goes on in each process, `whole` with all stacks; asked from any thread, of all at once."""
        names = self._at.told_as.copy()
        with ThreadPoolExecutor(max(1, len(names))) as asking:
            said = [*asking.map(partial(ask_actor, whole=whole), names)]
        return [
            ProcessStatus(
                name.rpartition(" ")[0],
                None if isinstance(at, str) else at,
                at if isinstance(at, str) else "",
            )
            for name, at in zip(names, said, strict=True)
        ]

    def holding(self) -> list[int]:
        """Return the version of the weights that each sampler is known to hold, -1 for one that is lost or takes another."""
        return self._serving.holding()

    # -- learning ---------------------------------------------------------------------------------------------

    def take_experts(self, encoded: Sequence[bytes], held_out: Sequence[bytes]) -> None:
        """Give the learner the expert trajectories: to imitate, and to measure itself by."""
        result_of(self._at.learner.take_experts.remote(list(encoded), list(held_out)))

    def measure(self) -> dict[str, float]:
        """Measure the learner on the experts held out."""
        return dict(result_of(self._at.learner.measure.remote()))

    def text_nll(self) -> dict[str, float]:
        """Measure how the learner finds plain English."""
        return dict(result_of(self._at.learner.text_nll.remote()))

    def imitate(self, *, lr: float, batch_trajectories: int, seed: int) -> dict[str, float]:
        """One pass of imitation over the experts."""
        with self._asleep():
            ref = self._at.learner.imitate.remote(lr=lr, batch_trajectories=batch_trajectories, seed=seed)
            return dict(result_of(ref))

    def update(
        self, encoded: Sequence[bytes], injections: Sequence[Injection], *, lr: float, step: int
    ) -> dict[str, float]:
        """One training step on a step's trajectories."""
        with self._asleep():
            ref = self._at.learner.update.remote(list(encoded), list(injections), lr=lr, step=step)
            return dict(result_of(ref))

    def publish(self, version: int, *, load: bool = True) -> None:
        """Make the learner's weights this version, and bring them to every inference engine unless `load` says not yet.

        Raise `Halted` where they did not arrive.
        """
        self._keep(version, self._at.learner.publish.remote(version))
        if load:
            self.show(version)

    def republish(self, version: int) -> None:
        """Do so for a run that goes on, whose learner may still have the versions before it."""
        self.publish(version)
        for lag in range(1, self._config.rollout.staleness + 1):
            older, weights = self._at.learner.behind.options(num_returns=2).remote(lag)
            self._keep(result_of(older), weights)

    def serve_newest(self) -> None:
        """Bring the learner's weights to every inference engine before the first `publish`, as no version of their own."""
        published = Published(self._at.learner.weights.remote(), 0, self._sent())
        self._serving.asked(self._serving.bring(published, anew=True)).result()

    def show(self, version: int) -> int:
        """Have every inference engine hold a version, or of those that are kept the oldest after it; return which."""
        return self._serving.asked(self._serving.serve(version)).result()

    async def serve(self, version: int) -> int:
        """Do so from an event loop, where requests may be in flight: each sampler takes the weights between two tokens.

        With `rollout.mode=stream` one that is lost meanwhile, or does not answer, is not waited for: another process takes
        its place, which rollouts ask once it has shown that it holds the version served last.
        """
        return await asyncio.wrap_future(self._serving.asked(self._serving.serve(version)))

    async def fails(self) -> NoReturn:
        """Raise `Halted` as soon as no sampler is left, where they may be lost; else never return."""
        await asyncio.wrap_future(self._serving.asked(self._serving.fails()))
        raise AssertionError("it raises")

    def begin_save(self, folder: Path) -> Callable[[], None]:
        """Let the learner write its part of a checkpoint; return what waits for that, on any thread.

        It does what it is asked in order: what it learns next is learned when that is written.
        """
        return partial(result_of, self._at.learner.save.remote(folder.absolute()))

    def load(self, folder: Path) -> None:
        """Let the learner read its part of a checkpoint."""
        result_of(self._at.learner.load.remote(folder.absolute()))

    def export(self, folder: Path) -> None:
        """Write the model for `--model FOLDER`."""
        result_of(self._at.learner.export.remote(folder.absolute()))

    # -- inside -----------------------------------------------------------------------------------------------

    def _keep(self, version: int, weights: Any) -> None:
        """Keep what the learner gave away last as a version."""
        published = Published(weights, version, self._sent())
        self._serving.asked(self._serving.keep(published)).result()

    def _sent(self) -> Digests:
        digests: Digests = result_of(self._at.learner.sent.remote())
        return digests

    def _samplers(self) -> Serving:
        """Return who serves weights to the samplers. With `rollout.mode=stream` they may be lost: others promise batches."""
        options = self._config.rollout
        replacing = Replacing(self._at.start, self._introduce) if options.streams else None
        return Serving(self._at.engines, kept=options.staleness + 1, replacing=replacing)

    async def _introduce(self, number: int, engine: Any) -> None:
        """Have rollouts ask an engine in place of the one of its number that was lost."""
        await asyncio.gather(*(answer_of(worker.meet.remote(number, engine)) for worker in self._at.workers))
        with suppress(Lost):
            self._at.pids[1 + number] = await answer_of(engine.process_id.remote())

    @contextmanager
    def _asleep(self) -> Iterator[None]:
        """Have the samplers of the learner's bundle give back memory while it learns."""
        result_of([engine.sleep.remote() for engine in self._at.beside])
        yield
        result_of([engine.wake.remote() for engine in self._at.beside])

    def _spread(self, method: str, requests: Sequence[RolloutRequest], *args: object) -> list[Any]:
        """Deal the requests out round robin and put the answers back in order."""
        count = len(self._at.workers)
        refs = [
            getattr(worker, method).remote(requests[number::count], *args)
            for number, worker in enumerate(self._at.workers)
        ]
        results: list[Any] = [None] * len(requests)
        for number, part in enumerate(result_of(refs)):
            results[number::count] = part
        return results


def _from_anywhere(config: TrainConfig) -> TrainConfig:
    """Return the settings with a model's folder called as it is from everywhere: actors may work in another folder."""
    folder = Path(config.model)
    if config.model == config.engine or not folder.is_dir():
        return config
    return config.model_copy(update={"model": str(folder.absolute())})
