"""Snapshots of containers: images of one more layer, tagged `rock-snap:SERVER-ID` and labelled with what they build upon.

Used by the `docker` backend; the registry asks what is a snapshot. The engine keeps the layers and counts who shares them;
no record is kept here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rock_env.backends.docker.container import LABEL_BOX, LABEL_SERVER, ImageFacts
from rock_env.backends.docker.engine import Engine, EngineRefusal, finished
from rock_env.backends.docker.graft import GRAFT_BYTES, layers_above
from rock_env.errors import FailedPrecondition, InfraError, NotFound

__all__ = ["LABEL_FROM", "SNAPSHOTS", "DockerLayers", "is_snapshot"]

LABEL_FROM = "rock.from"
"""On a container: the snapshot it was started from."""
_LABEL_ID, _LABEL_PARENT = "rock.snapshot", "rock.snapshot.parent"
SNAPSHOTS = "rock-snap"
"""The repository that snapshots are tagged in."""
_THAW_TRIES, _THAW_S = 50, 0.02


def is_snapshot(described: Mapping[str, Any]) -> bool:
    """Return whether an image, as the engine describes it, holds a sandbox's files: of any server, for its tenant alone."""
    return _LABEL_ID in (described["Config"].get("Labels") or {})


class DockerLayers:
    """The snapshots of one backend, told from others' by the id of its state folder."""

    def __init__(self, engine: Engine, state_id: str) -> None:
        self._engine = engine
        self._state_id = state_id
        self._own = f"{LABEL_SERVER}={state_id}"
        self._above: dict[tuple[str, str], tuple[list[Path] | None, int]] = {}

    async def image(self, snapshot_id: str) -> ImageFacts:
        """Return the image of a snapshot. Raise `NotFound`."""
        return ImageFacts.of(await self._described(snapshot_id))

    async def above(
        self, snapshot_id: str, image: str, *, most_bytes: float = GRAFT_BYTES
    ) -> list[Path] | None:
        """Return a snapshot's own layers above those of an image, as folders, lowest first; None if not to be copied."""
        pair = (snapshot_id, image)
        if pair not in self._above:  # asked once for each of many forks; a layer never changes
            described, below = await asyncio.gather(self._described(snapshot_id), self._engine.image(image))
            self._above[pair] = layers_above(described, below), described["Size"] - below["Size"]
        layers, size = self._above[pair]
        return layers if size <= most_bytes else None

    async def _described(self, snapshot_id: str) -> dict[str, Any]:
        try:
            described: dict[str, Any] = await self._engine.call(
                "GET", f"/images/{self._tag(snapshot_id)}/json"
            )
        except EngineRefusal as refusal:
            if refusal.status in (400, 404):
                raise NotFound(f"there is no snapshot {snapshot_id!r} on this node") from refusal
            raise
        if ((described.get("Config") or {}).get("Labels") or {}).get(LABEL_SERVER) != self._state_id:
            raise NotFound(f"there is no snapshot {snapshot_id!r} of this server on this node")
        return described

    async def commit(self, container: dict[str, Any], snapshot_id: str) -> int:
        """Freeze an inspected container's files as a snapshot; return the bytes of the new layer.

        The container stands still meanwhile, as a whole. Raise `FailedPrecondition` if the id is taken.
        """
        if snapshot_id in await self.all():
            raise FailedPrecondition(f"there is a snapshot {snapshot_id!r} already")
        below = ImageFacts.of(await self._engine.image(container["Image"]))
        parent = (container["Config"].get("Labels") or {}).get(LABEL_FROM, "")
        own = {LABEL_SERVER: self._state_id, _LABEL_ID: snapshot_id, _LABEL_PARENT: parent}
        # The engine adds from the container whatever this leaves out: its labels and where its commands start.
        labels = {**(below.config.get("Labels") or {}), LABEL_BOX: "", LABEL_FROM: "", **own}
        config = {**below.config, "Labels": labels, "WorkingDir": below.workdir or "/"}
        params = {
            "container": container["Id"],
            "repo": SNAPSHOTS,
            "tag": f"{self._state_id}-{snapshot_id}",
            "pause": "0",
        }
        async with self._engine.turn:  # before it is stopped, so that it does not stand still in a queue
            try:
                await finished(self._engine.call("POST", f"/containers/{container['Id']}/pause"))
                made = await finished(self._engine.call("POST", "/commit", params=params, body=config))
            except asyncio.CancelledError:
                await asyncio.shield(self.delete(snapshot_id))
                raise
            finally:
                await asyncio.shield(self.thaw(container["Id"]))
        above = ImageFacts.of(await self._engine.image(made["Id"]))
        return max(0, above.size - below.size)

    async def thaw(self, container: str) -> None:
        """Let a container go on that was stopped for a snapshot.

        Docker 20.10 refuses an unpause that comes too soon after the pause, and then it must be repeated.
        """
        for _ in range(_THAW_TRIES):
            try:
                await self._engine.call("POST", f"/containers/{container}/unpause")
            except EngineRefusal as refusal:
                described = await self._engine.inspect(container)
                if described is None or not described["State"]["Running"]:
                    return  # it died meanwhile, which its connection says
                if not described["State"]["Paused"]:
                    return
                last = refusal
            else:
                return
            await asyncio.sleep(_THAW_S)
        raise InfraError(f"the Docker engine does not let a sandbox go on after a snapshot: {last}")

    async def all(self) -> set[str]:
        """Return the ids of all snapshots of this backend."""
        return {labels[_LABEL_ID] for labels in await self._labels()}

    async def delete(self, snapshot_id: str) -> None:
        """Remove a snapshot. Raise `FailedPrecondition` while a box or another snapshot builds upon it."""
        self._above = {pair: layers for pair, layers in self._above.items() if pair[0] != snapshot_id}
        known = {labels[_LABEL_ID]: labels for labels in await self._labels()}
        if snapshot_id not in known:
            return
        above = [name for name, labels in known.items() if labels.get(_LABEL_PARENT) == snapshot_id]
        boxes = await self._engine.containers(self._own, f"{LABEL_FROM}={snapshot_id}")
        if above or boxes:
            users = [f"snapshot {name}" for name in sorted(above)]
            users += [f"container {box['Id'][:12]}" for box in boxes]
            raise FailedPrecondition(
                f"snapshot {snapshot_id!r} is still built upon by {', '.join(users)}; remove those first"
            )
        try:
            # Without "noprune" the engine would remove an untagged image below as well, which is not ours.
            await self._engine.heavy("DELETE", f"/images/{self._tag(snapshot_id)}", params={"noprune": "1"})
        except EngineRefusal as refusal:
            if refusal.status == 409:
                raise FailedPrecondition(f"snapshot {snapshot_id!r} is in use: {refusal}") from refusal
            if refusal.status != 404:
                raise

    async def delete_all(self) -> None:
        """Remove every snapshot of this backend, those that build upon others first; no box may use one any more."""
        while known := await self._labels():
            parents = {labels.get(_LABEL_PARENT) for labels in known}
            tops = [labels[_LABEL_ID] for labels in known if labels[_LABEL_ID] not in parents]
            for name in tops:
                await self.delete(name)

    async def _labels(self) -> list[dict[str, str]]:
        filters = json.dumps({"label": [self._own, _LABEL_ID]})
        images = await self._engine.call("GET", "/images/json", params={"filters": filters})
        # One whose tag was taken away is there for the layers above it only, and is nobody's snapshot any more.
        return [
            image["Labels"]
            for image in images
            if self._tag(image["Labels"][_LABEL_ID]) in (image["RepoTags"] or ())
        ]

    def _tag(self, snapshot_id: str) -> str:
        return f"{SNAPSHOTS}:{self._state_id}-{snapshot_id}"
