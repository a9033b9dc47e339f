"""What the `docker` backend finds and makes once on a machine, and the removal of what a server left there."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from rock_env.backends.docker.bundle import Bundle
from rock_env.backends.docker.container import LABEL_SERVER
from rock_env.backends.docker.deaths import Deaths
from rock_env.backends.docker.engine import Engine
from rock_env.backends.docker.layers import DockerLayers
from rock_env.backends.docker.network import Egress
from rock_env.backends.docker.state import DockerStateFolder
from rock_env.threads import for_life

__all__ = ["EngineNode", "open_node", "remove_all"]

_OOM_COUNTERS = {"1": "/sys/fs/cgroup/memory/memory.oom_control", "2": "/sys/fs/cgroup/memory.events"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineNode:
    """What the first use of the backend finds and makes."""

    state: DockerStateFolder
    engine: Engine
    bundle: Bundle
    deaths: Deaths
    layers: DockerLayers
    egress: Egress
    host_cpus: int
    runtimes: frozenset[str]
    default_runtime: str
    oom_counter: str
    docker_root: Path
    """Where the engine keeps its containers."""

    def name(self, sandbox_id: str) -> str:
        """Return the name of a box's container."""
        return f"rock-{self.state.id}-{sandbox_id}"


async def open_node(
    socket: Path | None, root: Path | None, *, bundles: Path | None, shared: bool
) -> EngineNode:
    """Reach the engine, lock the state folder and build the guest's bundle. Raise `RockError`; then nothing is held."""
    engine = Engine(socket)
    try:
        info = await engine.call("GET", "/info")
        state = await for_life(DockerStateFolder.open, root, shared=shared)
        try:
            bundle = await for_life(Bundle.build, bundles or state.path / "bundles")
            await _sweep(engine)
        except BaseException:
            state.close()
            raise
    except BaseException:
        await engine.close()
        raise
    label = f"{LABEL_SERVER}={state.id}"
    egress = Egress(engine, state.id, {LABEL_SERVER: state.id})
    await egress.keep_only(state.boxes())
    return EngineNode(
        state,
        engine,
        bundle,
        Deaths(engine, label),
        DockerLayers(engine, state.id),
        egress,
        int(info["NCPU"]),
        frozenset(info["Runtimes"]),
        info["DefaultRuntime"],
        _OOM_COUNTERS.get(info.get("CgroupVersion", "1"), _OOM_COUNTERS["2"]),
        Path(info["DockerRootDir"]),
    )


async def _sweep(engine: Engine) -> None:
    """Remove what killed servers with temporary folders left."""
    for state in await for_life(DockerStateFolder.abandoned):
        try:
            log.info("removing what a killed server left folder=%s", state.path)
            await remove_all(engine, state)
        except BaseException:
            await for_life(state.close, keep=True)
            raise
        await for_life(state.close)


async def remove_all(engine: Engine, state: DockerStateFolder) -> None:
    """Remove every container, snapshot and network rule of a state folder."""
    for listed in await engine.containers(f"{LABEL_SERVER}={state.id}"):
        await engine.remove(listed["Id"])
    await DockerLayers(engine, state.id).delete_all()
    await Egress(engine, state.id, {}).close()
