"""The registry: images by name and tenant, built once per context, pinned to their content when a sandbox starts.

Images live in the engine; the names, and what is known of them, in `images.records`. What it builds it may also
remove (`images.cache`); what it only took over by name it never does.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from rock_env.arguments import shown
from rock_env.backends.docker.engine import Engine, EngineRefusal
from rock_env.backends.docker.layers import SNAPSHOTS, is_snapshot
from rock_env.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RockError,
    Unavailable,
    plugin_call,
)
from rock_env.server.images.builds import BuildLimits, BuildRun, BuildWish, build_image, pull_image
from rock_env.server.images.context import MAX_CONTEXT_BYTES, BuildContext
from rock_env.server.images.dockerfile import Needs, needs_of_triggers
from rock_env.server.images.records import ImageRecord, RecordKeeper
from rock_env.spec import SandboxSpec

__all__ = ["MOST_BUILDS", "MOST_NAMES", "TAG", "Registry", "RegistryOptions"]

log = logging.getLogger(__name__)

TAG = "rock-image"
"""The repository our builds are tagged in, so that nobody's `docker image prune` takes them."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,127}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?", re.ASCII)
_ID = re.compile(r"(sha256:)?[0-9a-f]{1,64}")
"""What the engine may take for an id, or for the beginning of one."""
_ARCHITECTURES = {
    "amd64": ("amd64", "x86_64", "x86-64"),
    "arm64": ("arm64", "aarch64", "arm64/v8", "aarch64/v8"),
}
"""What the engine takes for its own architecture."""
MOST_NAMES = 1000
"""How many names of images one tenant may have."""
MOST_BUILDS = 8
"""How many builds of one tenant run or wait at once."""
_PARALLEL = 2
_KEPT_BUILDS = 100
"""How many builds that ended can still be watched."""


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """What an operator may set."""

    max_context_bytes: int = MAX_CONTEXT_BYTES
    limits: BuildLimits = field(default_factory=BuildLimits)
    spool: Path | None = None
    """Where contexts wait for their build; None is the system's folder for temporary files."""
    shared: bool = False
    """Whether others than the one who started the server build here."""


async def _nothing() -> None:
    return


class Registry:
    """The images of one node. Enter it on the event loop; the engine and the records stay the caller's."""

    def __init__(
        self,
        engine: Engine,
        records: RecordKeeper,
        options: RegistryOptions | None = None,
        *,
        make_room: Callable[[], Awaitable[object]] = _nothing,
    ) -> None:
        """`make_room` is called before each build and may free some disk."""
        self.engine = engine
        self.records = records
        self.options = options or RegistryOptions()
        self._make_room = make_room
        self._builds: dict[str, BuildRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(_PARALLEL)

    async def __aenter__(self) -> Registry:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what is being built: the engine stops a build whose connection closes."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- names

    async def get(self, tenant: str, name: str) -> ImageRecord:
        """Return the image of this name. Raise `NotFound`, naming those there are."""
        record = await self._named(tenant, name)
        if record is None:
            known = ", ".join(record.name for record in await self.records.of(tenant)) or "none"
            raise NotFound(f"no registered image {name!r}; there are: {known}. Register makes one.")
        return record

    async def _named(self, tenant: str, name: str) -> ImageRecord | None:
        """Return the image of this name; what cannot be a name is not searched for."""
        return await self.records.get(tenant, name) if _NAME.fullmatch(name) else None

    async def away(self, tenant: str, name: str) -> str:
        """Return the node that has the image of this name, or "" where that is this one or none."""
        record = await self._named(tenant, name)
        return "" if record is None or record.node == self.records.node else record.node

    async def adopt(self, tenant: str, name: str, image: str) -> ImageRecord:
        """Give an image that the engine has a name of the tenant's, pinned to its present content."""
        await self._check_name(tenant, name)
        image_id, size_bytes = await self._in_engine(tenant, image)
        now = time.time()
        record = ImageRecord(
            tenant=tenant,
            name=name,
            image_id=image_id,
            source=image,
            size_bytes=size_bytes,
            created_at=now,
            used_at=now,
            node=self.records.node,
        )
        await self.records.put(record)
        return record

    async def delete(self, tenant: str, name: str) -> ImageRecord:
        """Take the name away, and remove the image if it was built on this node and nothing uses it.

        Another node's engine removes the image when it needs room.
        """
        record = await self.get(tenant, name)
        await self.records.unname(record)
        if record.node != self.records.node:
            return record
        if record.built and not any(other.name for other in await self.records.with_image(record.image_id)):
            try:
                await self.remove(record.image_id)
            except RockError as error:  # in use: the image cache removes it when it no longer is
                log.info("a deleted image stays for now image=%s cause=%s", record.image_id, error)
            else:
                # Another tenant may have taken the same image up just now: its name says then what became of it.
                await self.records.gone(record.image_id, evicted=True)
        return record

    async def remove(self, image_id: str) -> None:
        """Remove a built image from the engine. Raise `RockError` while something uses it."""
        try:
            await self.engine.heavy("DELETE", f"/images/{_tag(image_id)}")
        except EngineRefusal as refusal:
            if refusal.status != 404:
                raise

    async def pin(self, tenant: str, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec with its image's content digest in place of a name, so that a later tag changes nothing.

        Raise `FailedPrecondition` for an image that was evicted, `InvalidArgument` for one there is not, `Unavailable`
        for one that only another node has.
        """
        if not spec.image:
            return spec
        record = await self._named(tenant, spec.image)
        if record is None:
            return replace(spec, image=(await self._in_engine(tenant, spec.image))[0])
        if record.evicted:
            raise FailedPrecondition(
                f"the image {spec.image!r} was removed to free the disk. Register its folder again; that builds it anew."
            )
        if record.node != self.records.node:
            raise Unavailable(
                f"the image {spec.image!r} was registered on node {record.node!r}, and no server there takes the sandbox "
                f"now. Start one there, or register the image's folder again: that builds it on {self.records.node!r}.",
                retry_after_s=5.0,
            )
        await self.records.touch(record, time.time())
        return replace(spec, image=record.image_id)

    async def _check_name(self, tenant: str, name: str) -> None:
        """Raise `InvalidArgument` for what is no name, `ResourceExhausted` for one more than a tenant may have."""
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"bad image name {name!r}: expected up to 128 of a-z, 0-9, '.', '_', '/' and '-', a letter or digit "
                "first, and maybe a tag such as ':v2'."
            )
        names = {record.name for record in await self.records.of(tenant)}
        if len(names) >= MOST_NAMES and name not in names:
            raise ResourceExhausted(
                f"there are {len(names)} registered images, of at most {MOST_NAMES}. Delete one that is not needed."
            )

    async def _in_engine(self, tenant: str, image: str) -> tuple[str, int]:
        """Return id and size of an image of the engine's. Raise `InvalidArgument` for one that is not open to the tenant."""
        described = await self.engine.image(image)
        image_id = str(described["Id"])
        if not await self._is_open(tenant, image, described):
            raise InvalidArgument(
                f"the Docker engine has no image {image!r}. Register it, or name another one."
            )
        return image_id, int(described.get("Size", 0))

    async def _check_needs(self, tenant: str, needs: Needs) -> None:
        """Raise `InvalidArgument` for a Dockerfile that asks of the engine what is not its tenant's to have."""
        if self.options.shared and needs.downloads:
            raise InvalidArgument(
                f"the Dockerfile adds {min(needs.downloads)}, which may be an address: the engine would fetch it from the "
                "server's own network. Use COPY for a file of the context, and RUN with curl for a download."
            )
        arch = await self._arch(needs.platforms) if self.options.shared and needs.platforms else ""
        for image in needs.images:
            described = await self._check_base(tenant, image)
            if described is None:
                continue
            if arch and described.get("Architecture") != arch:
                raise InvalidArgument(
                    f"the Docker engine has the image {image!r} for {described.get('Architecture')!r}, and the Dockerfile "
                    f"asks for {shown(min(needs.platforms))}. Name one for {arch!r}, or leave --platform out."
                )
            beyond = needs_of_triggers(map(str, (described.get("Config") or {}).get("OnBuild") or ()))
            if self.options.shared and beyond.downloads:
                raise InvalidArgument(
                    f"the image {image!r} adds {min(beyond.downloads)} where it is built upon."
                )
            for other in beyond.images:
                await self._check_base(tenant, other)

    async def _arch(self, platforms: frozenset[str]) -> str:
        """Return the engine's architecture. Raise `InvalidArgument` for a platform of another: it would be fetched anew."""
        arch = str((await self.engine.call("GET", "/version"))["Arch"])
        names = _ARCHITECTURES.get(arch, (arch,))
        known = {"linux", *names, *(f"linux/{name}" for name in names)}
        for platform in platforms:
            if platform.lower() not in known:
                raise InvalidArgument(
                    f"the Dockerfile asks for the platform {shown(platform)}, and this engine has {arch}. Leave it out."
                )
        return arch

    async def _check_base(self, tenant: str, image: str) -> Mapping[str, Any] | None:
        """Return what the engine knows of an image, None where it may pull it.

        Raise `InvalidArgument` for one that a Dockerfile of the tenant's may not name.
        """
        try:
            described = await self.engine.image(image)
        except InvalidArgument:
            if not _ID.fullmatch(image) and not _is_of_servers(image):
                return None
        else:
            if await self._is_open(tenant, image, described):
                return described
        raise InvalidArgument(
            f"the Dockerfile names the image {image!r}, which the Docker engine has not. Name an image that it has or can "
            "pull, or the whole id of one of yours."
        )

    async def _get_bases(self, build: BuildRun, needs: Needs) -> None:
        """Get what the engine lacks before the build does, and check all once more: what an image does where it is built
        upon is known when it is there.
        """
        for image in needs.images:
            if await self._check_base(build.tenant, image) is None:
                await pull_image(self.engine, image, limits=self.options.limits, build=build)
                if await self._check_base(build.tenant, image) is None:
                    raise InvalidArgument(f"the engine got the image {image!r}, and has it not by that name.")
        await self._check_needs(build.tenant, needs)

    async def _is_open(self, tenant: str, image: str, described: Mapping[str, Any]) -> bool:
        """Return whether a tenant may use an image of the engine's. One that another tenant built is as good as none.

        So is a snapshot, which is an image to the engine (the way to start from one does not come by here), and what the
        engine finds by the beginning of an id: that would be guessed in a few tries.
        """
        records = await self.records.with_image(str(described["Id"]))
        owners = {record.tenant for record in records if record.built}
        return not (
            (owners and tenant not in owners) or is_snapshot(described) or _is_guessed(image, described)
        )

    # -- builds

    async def context(self, tenant: str) -> BuildContext:
        """Return a place for a context that arrives."""
        most = self.options.max_context_bytes
        return await BuildContext.open(self.options.spool, max_bytes=most, tenant=tenant)

    async def register(self, tenant: str, wish: BuildWish, context: BuildContext) -> tuple[BuildRun, bool]:
        """Return the build of a sealed context, and whether it is a new one: the same context is built once.

        The context is the registry's from here on, to be closed when it is not needed any more.
        """
        try:
            await self._check_name(tenant, wish.name)
            await self._check_needs(tenant, context.needs)
            self._check_builds(tenant)
            running = self._running(tenant, wish.name, context.digest)
            done = running or await self._found(tenant, wish.name, context.digest)
            if done is not None:
                context.close()
                return done, False
        except BaseException:
            context.close()
            raise
        build = BuildRun(tenant, wish.name, context.digest, maker=self.records.maker)
        self._keep(build)
        task = asyncio.get_running_loop().create_task(self._run(build, wish, context))
        self._tasks[build.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(build.id, None))
        return build, True

    def _check_builds(self, tenant: str) -> None:
        """Raise `ResourceExhausted` where so many builds of the tenant run or wait as may: each holds an open file."""
        count = sum(build.tenant == tenant and not build.ended for build in self._builds.values())
        if count >= MOST_BUILDS:
            raise ResourceExhausted(
                f"{count} builds run or wait, of at most {MOST_BUILDS}. Wait for one to end.",
                retry_after_s=5.0,
            )

    def _running(self, tenant: str, name: str, context_digest: str) -> BuildRun | None:
        asked = (tenant, name, context_digest, False)
        for build in self._builds.values():
            if (build.tenant, build.name, build.context_digest, build.ended) == asked:
                return build
        return None

    async def _found(self, tenant: str, name: str, context_digest: str) -> BuildRun | None:
        """Return a build that is over before it began, where the image is there already."""
        known = await self.records.built_from(tenant, context_digest)
        if known is None or not await self._exists(known):
            return None
        record = msgspec.structs.replace(known, name=name, used_at=time.time())
        await self.records.put(record)
        build = BuildRun(tenant, name, context_digest, maker=self.records.maker)
        build.end(record)
        self._keep(build)
        return build

    def build(self, tenant: str, build_id: str) -> BuildRun:
        """Return a build that runs or ended lately. Raise `NotFound`."""
        build = self._builds.get(build_id)
        if build is None or build.tenant != tenant:
            raise NotFound(
                f"no build {build_id!r} on this server; it may have ended long ago. Get shows its image."
            )
        return build

    async def _run(self, build: BuildRun, wish: BuildWish, context: BuildContext) -> None:
        try:
            with plugin_call(f"building {wish.name!r}"):
                async with self._turn:
                    await self._make_room()
                    if self.options.shared:
                        await self._get_bases(build, context.needs)
                    build.began_at = time.time()
                    image_id = await build_image(
                        self.engine,
                        context,
                        dockerfile=wish.dockerfile,
                        build_args=wish.build_args,
                        limits=self.options.limits,
                        build=build,
                        shared=self.options.shared,
                    )
                await self._tag(image_id)
                described = await self.engine.image(image_id)
                now = time.time()
                record = ImageRecord(
                    tenant=build.tenant,
                    name=wish.name,
                    image_id=image_id,
                    context_digest=build.context_digest,
                    size_bytes=int(described.get("Size", 0)),
                    created_at=now,
                    used_at=now,
                    node=self.records.node,
                )
                await self.records.put(record)
        except RockError as error:
            log.info("a build failed build=%s name=%s cause=%s", build.id, wish.name, error)
            await self._keep_leftovers(build)
            build.end(error)
        except asyncio.CancelledError:
            build.end(FailedPrecondition("the server stopped during the build. Register the folder again."))
            raise
        else:
            await self._keep_leftovers(build)
            build.end(record)
        finally:
            context.close()

    async def _keep_leftovers(self, build: BuildRun) -> None:
        """Record what a build left, nameless: it makes the next one quick, and goes when the disk fills up."""
        for layer in filter(None, build.leftovers):
            try:
                described = await self.engine.image(layer)
                image_id = str(described["Id"])
                # Its commands write to the log, too: only what the engine made since is this build's.
                if _made_at(described) < build.began_at or await self.records.with_image(image_id):
                    continue
                await self._tag(image_id)
                now = time.time()
                await self.records.put(
                    ImageRecord(
                        tenant=build.tenant,
                        name="",
                        image_id=image_id,
                        context_digest=f"part of {build.context_digest}",
                        created_at=now,
                        used_at=now,
                        node=self.records.node,
                    )
                )
            except RockError as error:
                log.warning("what a build left is not known of image=%s cause=%s", layer, error)

    async def _tag(self, image_id: str) -> None:
        repository, _, tag = _tag(image_id).partition(":")
        await self.engine.call("POST", f"/images/{image_id}/tag", params={"repo": repository, "tag": tag})

    async def _exists(self, record: ImageRecord) -> bool:
        try:
            await self.engine.image(record.image_id)
        except InvalidArgument:
            return False
        return True

    def _keep(self, build: BuildRun) -> None:
        self._builds[build.id] = build
        ended = [build_id for build_id, other in self._builds.items() if other.ended]
        for build_id in ended[:-_KEPT_BUILDS]:
            del self._builds[build_id]


def _tag(image_id: str) -> str:
    return f"{TAG}:{image_id.removeprefix('sha256:')[:32]}"


def _is_of_servers(image: str) -> bool:
    """Return whether a name is one that servers give: nobody pulls it, and it may come to be while a build runs."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0] in (TAG, SNAPSHOTS)


def _made_at(described: Mapping[str, Any]) -> float:
    """Return when the engine made an image, in seconds since the epoch; 0 where it does not say."""
    try:
        return datetime.fromisoformat(str(described["Created"])).timestamp()
    except (KeyError, ValueError, OverflowError):
        return 0.0


def _is_guessed(image: str, described: Mapping[str, Any]) -> bool:
    """Return whether the engine took the word for the beginning of an id: neither the whole of it nor a name."""
    begin, whole = image.removeprefix("sha256:"), str(described["Id"]).removeprefix("sha256:")
    named = any(tag.rpartition(":")[0] == image for tag in described.get("RepoTags") or ())
    return begin != whole and whole.startswith(begin) and not named
