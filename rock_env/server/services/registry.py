"""The gRPC face of the RegistryService: contexts in, build logs out, and the report of the conformance gate.

It keeps no state: the registry has the images and the builds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc

from rock_env.errors import InvalidArgument
from rock_env.proto.v1 import registry_pb2 as pb
from rock_env.security.auth import current_tenant
from rock_env.server.calls import Act, Context, add_service
from rock_env.server.images.builds import BuildRun, BuildWish
from rock_env.server.images.records import ImageRecord
from rock_env.server.images.registry import Registry
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.sandboxes.validate import CheckedBoxes, validate
from rock_env.wire.sandboxes import sandbox_spec, timestamp

__all__ = ["SERVICE", "add_registry_service"]

SERVICE = pb.DESCRIPTOR.services_by_name["RegistryService"].full_name


class _RegistryService:
    def __init__(self, registry: Registry, sandboxes: SandboxCore) -> None:
        self._registry = registry
        self._sandboxes = sandboxes

    async def register(self, requests: AsyncIterator[pb.RegisterRequest], context: Context) -> None:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("kind") != "start":
            raise InvalidArgument("the first message of Register must be `start`")
        start, tenant = first.start, current_tenant()
        if start.image:
            record = await self._registry.adopt(tenant, start.name, start.image)
            await context.write(pb.BuildEvent(image=_image(record)))
            return
        wish = BuildWish(start.name, start.dockerfile or "Dockerfile", dict(start.build_args))
        arriving = await self._registry.context(tenant)
        try:
            async for request in requests:
                if request.WhichOneof("kind") != "tar":
                    raise InvalidArgument("after `start`, Register takes `tar` only")
                await arriving.write(request.tar)
            await arriving.seal(dockerfile=wish.dockerfile, build_args=wish.build_args)
        except BaseException:
            arriving.close()
            raise
        build, new = await self._registry.register(tenant, wish, arriving)
        await context.write(pb.BuildEvent(build_id=build.id, context_digest=build.context_digest))
        await self._follow(build, 0, context, built_now=new)

    async def watch_build(self, request: pb.WatchBuildRequest, context: Context) -> None:
        build = self._registry.build(current_tenant(), request.build_id)
        await self._follow(build, request.offset, context, built_now=True)

    async def _follow(self, build: BuildRun, offset: int, context: Context, *, built_now: bool) -> None:
        async with aclosing(build.read(offset)) as log_of_it:
            async for at, data in log_of_it:
                await context.write(pb.BuildEvent(build_id=build.id, log=pb.BuildLog(offset=at, data=data)))
        if build.error is not None:
            raise build.error
        assert build.image is not None  # a log ends when its build has
        message = _image(build.image)
        message.built_now = built_now
        await context.write(pb.BuildEvent(build_id=build.id, image=message))

    async def get(self, request: pb.GetImageRequest, _: Context) -> pb.ImageInfo:
        return _image(await self._registry.get(current_tenant(), request.name))

    async def list(self, _: pb.ListImagesRequest, __: Context) -> pb.ListImagesResponse:
        return pb.ListImagesResponse(images=map(_image, await self._registry.records.of(current_tenant())))

    async def delete(self, request: pb.DeleteImageRequest, _: Context) -> pb.ImageInfo:
        return _image(await self._registry.delete(current_tenant(), request.name))

    async def validate(self, request: pb.ValidateRequest, context: Context) -> None:
        tenant = current_tenant()
        spec = await self._registry.pin(tenant, sandbox_spec(request.spec))
        boxes = CheckedBoxes(self._sandboxes, spec)
        async with aclosing(validate(boxes, spec)) as outcomes:
            async for outcome in outcomes:
                await context.write(
                    pb.CheckReport(
                        name=outcome.name,
                        result=f"CHECK_RESULT_{outcome.verdict}",
                        evidence=outcome.evidence,
                        duration_s=outcome.duration_s,
                    )
                )


def _image(record: ImageRecord) -> pb.ImageInfo:
    return pb.ImageInfo(
        name=record.name,
        image_id=record.image_id,
        context_digest=record.context_digest,
        source=record.source,
        size_bytes=record.size_bytes,
        created_at=timestamp(record.created_at),
        used_at=timestamp(record.used_at),
        evicted=record.evicted,
    )


def add_registry_service(server: grpc.aio.Server, registry: Registry, sandboxes: SandboxCore) -> None:
    """Register the RegistryService on a server that has not started yet; images are validated on `sandboxes`."""
    service = _RegistryService(registry, sandboxes)
    acts: dict[str, Act] = {
        "Register": service.register,
        "WatchBuild": service.watch_build,
        "Get": service.get,
        "List": service.list,
        "Delete": service.delete,
        "Validate": service.validate,
    }
    add_service(server, pb.DESCRIPTOR.services_by_name["RegistryService"], acts)
