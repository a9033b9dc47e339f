"""Where everything runs: the embedded ROCK server, Ray, and the actors. The loop's only door to other processes.

Local by default; `ray_address` joins a cluster, where run folder and ROCK address must be reachable from every node.
It places and forwards; it decides nothing about learning.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.types import RolloutRequest
from rock_env.client.admin import AdminClient
from rock_env.client.retry import retrying
from rock_env.errors import InvalidArgument
from rock_env.local import EmbeddedServer, start_embedded
from rock_env.plugins import own
from trainer.config import TrainConfig
from trainer.errors import ConfigError, Halted
from trainer.models.chosen import asks_singly, check_files, memory_of
from trainer.models.placed import processes
from trainer.processes.accounts import Accounts, most_bytes, processor_s
from trainer.processes.learner import Learner
from trainer.processes.ray_errors import deliberate, reason
from trainer.processes.rewards import RewardActor
from trainer.processes.rollouts import RolloutWorker
from trainer.processes.samplers import InferenceActor, ReferenceActor, SteppedActor
from trainer.reward.router import Rewarded, reward_spec
from trainer.rollout.cli_agents import agent_options
from trainer.rollout.games import is_played_here
from trainer.rollout.own import own_env
from trainer.rollout.starts import Injection
from trainer.samplers.arrival import check_arrival
from trainer.signals import ours_while_ray_starts

__all__ = ["Fleet"]

_REACH_S = 10.0
"""How long a Ray cluster's head, or a ROCK server, may take to accept a connection."""
_RESERVE_S = 60.0
"""How long Ray may take to reserve a run's bundles."""


class Fleet:
    """The processes of one run. `with Fleet(...) as fleet:` starts them all and stops what it started."""

    def __init__(self, config: TrainConfig, ray_address: str | None, artifacts: Path | None = None) -> None:
        """Take the folder where artifacts of rollouts are kept, on the machines of the workers; None: they are not."""
        self._config = _from_anywhere(config)
        self._artifacts = str(artifacts.absolute()) if artifacts else ""
        self._ray_address = ray_address
        self._stack = ExitStack()
        self._workers: list[Any] = []
        self._engines: list[Any] = []
        self._beside: list[Any] = []
        """Those in the learner's bundle."""
        self._learner: Any = None
        self._rewarder: Any = None
        self._server: EmbeddedServer | None = None
        self.learns_from_rollouts = True
        """Whether the algorithm needs training rollouts at all."""

    def __enter__(self) -> Fleet:
        check_files(self._config.model)
        shelf = agent_options(self._config)
        rock_address = self._config.rollout.rock_address
        if rock_address:
            with ThreadPoolExecutor(1) as apart:  # the caller may be on an event loop of its own
                apart.submit(asyncio.run, _answered(rock_address)).result()
        with ExitStack() as stack:
            self._connect_ray(stack)
            if not rock_address and not is_played_here(self._config):
                options = [*shelf, *_hosted_on(self._config)]
                for each in self._config.shares:
                    options += stack.enter_context(own_env(each.env))
                self._server = start_embedded(options)
                stack.callback(self._server.close)
                rock_address = self._server.address
            self._place(rock_address, stack)
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

    def time_shares(self) -> dict[str, float]:
        """Return where the processors' time went since the start; empty where processes are on other machines."""
        if self._ray_address:
            return {}
        try:
            return self._accounts.shares(
                processor_s(
                    policy=self._pids[: self._policies],
                    service=[os.getpid(), *self._pids[self._policies :]],
                    server=self._server.pid if self._server else None,
                )
            )
        except OSError:
            return {}

    def memory(self) -> dict[str, dict[str, int]]:
        """Return by role what a process was estimated to take (`estimated`, bytes), and the most that one had (`taken`).

        The latter is known of roles on a processor of this machine. Empty where the engine works nothing out.
        """
        try:
            roles = memory_of(self._config)
        except InvalidArgument:  # the model is on another machine
            return {}
        found = {role.name: {"estimated": role.total} for role in roles}
        here = {role.name for role in roles if role.device == "cpu" and not self._ray_address}
        for name, pids in (("learner", self._pids[:1]), ("sampler", self._pids[1 : 1 + len(self._engines)])):
            if name in here:
                with suppress(OSError):
                    found[name]["taken"] = most_bytes(pids)
        return found

    # -- rollouts ---------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        """Run rollouts on all workers; return encoded trajectories in the order of the requests."""
        return self._spread("run", requests, policy_step)

    def play(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[list[bytes]]:
        """Run rollouts as `run` does, and rejected ones again; return all attempts, the one that counts last."""
        return self._spread("play", requests, policy_step)

    def record(self, requests: Sequence[RolloutRequest]) -> list[bytes]:
        """Let the oracle play the requests."""
        return self._spread("record", requests)

    def reward(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Let the reward workers judge a step's trajectories; without any, give back the same bytes."""
        if self._rewarder is None or not encoded:
            return Rewarded(list(encoded))
        rewarded: Rewarded = self._get(self._rewarder.reward.remote(list(encoded), run_folder.absolute()))
        return rewarded

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer single prompts, in order, with the published weights."""
        count = len(self._engines)
        parts = [engine.sample.remote(requests[n::count]) for n, engine in enumerate(self._engines)]
        completions: dict[int, Completion] = {}
        for number, part in enumerate(self._get(parts)):
            completions.update(zip(range(number, len(requests), count), part, strict=True))
        return [completions[position] for position in range(len(requests))]

    # -- learning ---------------------------------------------------------------------------------------------

    def take_experts(self, encoded: Sequence[bytes], held_out: Sequence[bytes]) -> None:
        """Give the learner the expert trajectories: to imitate, and to measure itself by."""
        self._get(self._learner.take_experts.remote(list(encoded), list(held_out)))

    def measure(self) -> dict[str, float]:
        """Measure the learner on the experts held out."""
        return dict(self._get(self._learner.measure.remote()))

    def text_nll(self) -> dict[str, float]:
        """Measure how the learner finds plain English."""
        return dict(self._get(self._learner.text_nll.remote()))

    def imitate(self, *, lr: float, batch_trajectories: int, seed: int) -> dict[str, float]:
        """One pass of imitation over the experts."""
        with self._asleep():
            ref = self._learner.imitate.remote(lr=lr, batch_trajectories=batch_trajectories, seed=seed)
            return dict(self._get(ref))

    def update(
        self, encoded: Sequence[bytes], injections: Sequence[Injection], *, lr: float, step: int
    ) -> dict[str, float]:
        """One training step on a step's trajectories."""
        with self._asleep():
            ref = self._learner.update.remote(list(encoded), list(injections), lr=lr, step=step)
            return dict(self._get(ref))

    def publish(self, version: int) -> None:
        """Bring the learner's weights to every inference engine. Raise `Halted` where they did not arrive."""
        self._bring(self._learner.publish.remote(version), version)

    def serve_newest(self) -> None:
        """Bring the learner's weights to every inference engine before the first `publish`, as no version of their own."""
        self._bring(self._learner.weights.remote(), 0)

    def serve_older(self, lag: int) -> None:
        """Bring the weights of `lag` versions ago to every inference engine, until the next `publish`.

        Of those kept the oldest, where so many versions were not published yet.
        """
        version, weights = self._learner.behind.options(num_returns=2).remote(lag)
        self._bring(weights, self._get(version))

    def save(self, folder: Path) -> None:
        """Let the learner write its part of a checkpoint."""
        self._get(self._learner.save.remote(folder.absolute()))

    def load(self, folder: Path) -> None:
        """Let the learner read its part of a checkpoint."""
        self._get(self._learner.load.remote(folder.absolute()))

    def export(self, folder: Path) -> None:
        """Write the model for `--model FOLDER`."""
        self._get(self._learner.export.remote(folder.absolute()))

    # -- inside -----------------------------------------------------------------------------------------------

    def _bring(self, weights: Any, version: int) -> None:
        """Load what the learner gave away last into every engine, and compare what they then have."""
        arrived = self._get([engine.load.remote(weights, version) for engine in self._engines])
        check_arrival(self._get(self._learner.sent.remote()), arrived, version)

    @contextmanager
    def _asleep(self) -> Iterator[None]:
        """Have the samplers of the learner's bundle give back memory while it learns."""
        self._get([engine.sleep.remote() for engine in self._beside])
        yield
        self._get([engine.wake.remote() for engine in self._beside])

    def _connect_ray(self, stack: ExitStack) -> None:
        if ray.is_initialized():
            return
        if self._ray_address:
            _check_reachable(self._ray_address)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            with ours_while_ray_starts():
                self._start_ray()
        except Exception as error:  # boundary: Ray raises whatever it met, also a bare Exception
            what = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            if self._ray_address:
                raise ConfigError(
                    f"cannot reach {self._ray_address}: {what}. Check --ray-address, or leave it out to train on this "
                    "machine."
                ) from error
            raise Halted(
                f"cannot start Ray on this machine: {what}. Check the space in /tmp and /dev/shm, and Ray's own log in "
                "/tmp/ray."
            ) from error
        stack.callback(ray.shutdown)

    def _start_ray(self) -> None:
        if self._ray_address:
            ray.init(address=self._ray_address, logging_level=logging.ERROR, log_to_driver=False)
            return
        rollout, pool = self._config.rollout, self._config.placement.pool
        ray.init(
            address="local",
            num_cpus=sum(bundle.cpus for bundle in pool)
            or rollout.workers + rollout.engines + 1 + bool(self._config.reward.routes),
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )

    def _place(self, rock_address: str, stack: ExitStack) -> None:
        config, rollout = self._config, self._config.rollout
        pool = _Pool(config)
        pool.reserve(stack)
        stepped = SteppedActor if asks_singly(config) else InferenceActor
        references = [
            ray.remote(ReferenceActor).options(**pool.options("reference", number)).remote(config)
            for number in range(len(config.placement.reference))
        ]
        learner = ray.remote(Learner).options(**pool.options("learner", 0))
        self._learner = learner.remote(config, *references)
        self._engines = [
            ray.remote(stepped).options(**pool.options("sampler", number)).remote(config)
            for number in range(rollout.engines)
        ]
        self._beside = [
            engine for number, engine in enumerate(self._engines) if pool.is_with_learner("sampler", number)
        ]
        self._workers = [
            ray.remote(RolloutWorker)
            .options(max_concurrency=1000, **pool.options("environments", number))
            .remote(config, rock_address, self._engines[number % rollout.engines], artifacts=self._artifacts)
            for number in range(rollout.workers)
        ]
        actors = [self._learner, *self._engines, *references, *self._workers]
        if config.reward.routes:
            rewarder = ray.remote(RewardActor).options(**pool.options("reward", 0))
            self._rewarder = rewarder.remote(config, rock_address)
            actors.append(self._rewarder)
        stack.callback(self._stop, actors)
        given = own()
        self._get([actor.ready.remote(given) for actor in actors])
        self._get(self._learner.prove_to.remote(self._engines[0].arrived.remote()))
        self._pids: list[int] = self._get([actor.process_id.remote() for actor in actors])
        self._policies = 1 + len(self._engines) + len(references)
        self._accounts = Accounts()
        self.time_shares()
        self.learns_from_rollouts = bool(self._get(self._learner.learns_from_rollouts.remote()))

    def _stop(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            ray.kill(actor)

    def _spread(self, method: str, requests: Sequence[RolloutRequest], *args: object) -> list[Any]:
        """Deal the requests out round robin and put the answers back in order."""
        count = len(self._workers)
        refs = [
            getattr(worker, method).remote(requests[number::count], *args)
            for number, worker in enumerate(self._workers)
        ]
        results: list[Any] = [None] * len(requests)
        for number, part in enumerate(self._get(refs)):
            results[number::count] = part
        return results

    def _get(self, refs: Any) -> Any:
        """Return the actors' results; raise what they raised, or `Halted` where a process or the numbers broke."""
        try:
            return ray.get(refs)
        except RayError as error:
            cause = deliberate(error)
            if isinstance(cause, FloatingPointError):
                raise Halted(f"{cause} What was saved before is intact.") from error
            if cause is not None:
                raise cause from error
            raise Halted(
                f"{reason(error)}. What was saved before is intact: continue with --resume. If memory ran out, "
                "lower rollout.concurrency or optim.microbatch_tokens."
            ) from error


class _Pool:
    """What Ray is told of where each actor is: bundles of a placement group, or shares of whatever devices there are."""

    def __init__(self, config: TrainConfig) -> None:
        """Raise `ConfigError` where devices of the pool cannot be dealt."""
        self._config = config
        self._dealt = {(each.role, each.number): each for each in processes(config)}
        self._group: Any = None
        self._gpus = 0.0

    def reserve(self, stack: ExitStack) -> None:
        """Have Ray reserve the bundles until the stack ends. Raise `ConfigError` where it cannot."""
        placement = self._config.placement
        if not placement.pool:
            self._share_devices()
            return
        bundles: list[dict[str, float]] = [
            {"CPU": bundle.cpus, **({"GPU": bundle.gpus} if bundle.gpus else {})} for bundle in placement.pool
        ]
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        for number, bundle in enumerate(bundles):
            if not any(all(has.get(kind, 0) >= count for kind, count in bundle.items()) for has in machines):
                raise ConfigError(
                    f"bundle {number} of placement.pool is larger than every machine: wanted {_counts(bundle)}, found "
                    f"{'; '.join(map(_counts, machines)) or 'no machine'}. Make it smaller, or join a cluster with "
                    "--ray-address."
                )
        self._group = placement_group(bundles, strategy=placement.strategy)
        stack.callback(remove_placement_group, self._group)
        if not self._group.wait(_RESERVE_S):
            raise ConfigError(
                f"Ray could not reserve placement.pool within {_RESERVE_S:.0f} s: wanted "
                f"{'; '.join(map(_counts, bundles))} with strategy {placement.strategy}, found "
                f"{'; '.join(map(_counts, machines))}, of which other runs may hold some. Make it smaller, or choose "
                "another strategy."
            )

    def options(self, role: str, number: int) -> dict[str, Any]:
        """Return Ray's options of the actor with this number, from 0, in its role."""
        if self._group is None:
            computes = role in {"learner", "sampler"} or (role == "reward" and self._judges)
            return {"num_cpus": 1, "num_gpus": self._gpus if computes else 0}
        process = self._dealt[role, number + 1]
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=process.bundle)
        return {"num_cpus": 1, "num_gpus": process.gpus, "scheduling_strategy": strategy}

    def is_with_learner(self, role: str, number: int) -> bool:
        """Return whether an actor is in the learner's bundle."""
        return self._group is not None and (
            self._dealt[role, number + 1].bundle == self._config.placement.learner
        )

    def _share_devices(self) -> None:
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self._gpus = min(1.0, found.get("GPU", 0.0) / (self._config.rollout.engines + 1 + self._judges))

    @property
    def _judges(self) -> bool:
        return any(reward_spec(route.worker).runs_model for route in self._config.reward.routes)


def _counts(resources: Mapping[str, float]) -> str:
    return " and ".join(
        f"{resources.get(kind, 0):g} {name}" for kind, name in (("CPU", "CPUs"), ("GPU", "GPUs"))
    )


def _hosted_on(config: TrainConfig) -> list[str]:
    """Return the embedded server's options for what the run asked of it."""
    trusting = ["--trust-libraries"] if config.rollout.trust_libraries else []
    return [*trusting, *(f"--backend={backend}" for backend in config.rollout.backends)]


def _from_anywhere(config: TrainConfig) -> TrainConfig:
    """Return the settings with a model's folder called as it is from everywhere: actors may work in another folder."""
    folder = Path(config.model)
    if config.model == config.engine or not folder.is_dir():
        return config
    return config.model_copy(update={"model": str(folder.absolute())})


def _check_reachable(address: str) -> None:
    """Raise `ConfigError` where nothing listens: Ray itself tries for minutes. One without a port is Ray's to find."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot reach the Ray cluster at {address}: {error}. Check --ray-address, or leave it out to train on "
            "this machine."
        ) from error


async def _answered(rock_address: str) -> None:
    """Return when a ROCK server answers there; raise `RockError` where none does for a while."""
    async with AdminClient(rock_address) as admin:

        async def ask() -> None:
            await admin.serving()

        await retrying(ask, for_s=_REACH_S)
