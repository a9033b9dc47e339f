"""The agent's work carried into a box it never touched: its source files, and nothing that steers how tests run.

Used by graders that run in pristine boxes. It reads the agent's box through its guest alone and runs nothing there.
"""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rock_env.errors import InfraError, InvalidArgument, NotFound, RockError, UnfitFiles
from rock_env.sandbox import Sandbox, limit_that_ended

__all__ = ["carry_work", "need_box", "own_limits", "steers_tests"]

_MAX_BYTES = 64 << 20
_STEERING = """
    conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml pyproject.toml setup.cfg setup.py tox.ini noxfile.py
    sitecustomize.py usercustomize.py .coveragerc package.json .npmrc .mocharc.json Makefile build.rs .cargo
    .git .hg .svn .venv venv node_modules __pycache__ .pytest_cache .hypothesis tests test __tests__
"""
"""Names of files and folders."""
_NAMES = frozenset(_STEERING.split())
_PATTERNS = re.compile(
    r"(?:^|.*/)(?:test_[^/]*|[^/]*_test\.(?:py|go)|[^/]*\.(?:test|spec)\.[cm]?[jt]sx?|jest\.config\.[^/]*|vitest\.[^/]*"
    r"|[^/]*\.(?:pth|pyc|pyo|so|pyd|dll|dylib|egg-link)|[^/]*\.(?:dist-info|egg-info))(?:/.*)?$"
)


def steers_tests(path: str) -> bool:
    """Return whether a file could change how tests are found or run: tests, settings, start-up files, compiled code."""
    return any(part in _NAMES for part in path.split("/")) or _PATTERNS.match(path) is not None


async def carry_work(box: Sandbox, to: Sandbox, folder: str) -> int:
    """Copy the regular files below `folder` that do not steer tests over those in the other box; return how many.

    Links are left out. Raise `UnfitFiles` where it cannot be taken or there is too much, `NotFound` without such a folder.
    """
    content = bytearray()
    async for block in box.download(folder):
        content += block
        if len(content) > _MAX_BYTES:
            raise UnfitFiles(f"{folder} of the agent is larger than {_MAX_BYTES} bytes")
    carried, count = io.BytesIO(), 0
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as source,
        tarfile.open(fileobj=carried, mode="w") as target,
    ):
        for member in source:
            path = posixpath.normpath(member.name)
            if member.isreg() and not path.startswith(("/", "..")) and not steers_tests(path):
                target.addfile(member, source.extractfile(member))
                count += 1
    try:
        await to.upload(folder, _blocks(carried.getvalue()))
    except InvalidArgument as error:  # such as a file where the image has a folder
        raise UnfitFiles(error.message) from error
    return count


async def need_box(box: Sandbox) -> None:
    """Raise `InfraError` if the box itself is gone: a file that is not found there is then nobody's doing."""
    try:
        await box.stat(".")
    except NotFound as error:
        raise InfraError(f"the sandbox went while it was graded: {error.message}") from error


@asynccontextmanager
async def own_limits(box: Sandbox) -> AsyncIterator[None]:
    """Mark the failure of a box that ended for a limit of its own (`RockError.own_limit`)."""
    try:
        yield
    except RockError as error:
        error.own_limit = error.own_limit or bool(await limit_that_ended(box))
        raise


async def _blocks(content: bytes) -> AsyncIterator[bytes]:
    yield content
