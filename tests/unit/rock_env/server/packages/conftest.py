"""A mirror with an upstream of its own, and somebody who asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking_packages import Asking, Opening
from package_upstream import FakeUpstream

from rock_env.server.options import ServerOptions
from rock_env.server.packages.bounds import FetchLimits
from rock_env.server.packages.mirror import open_mirror


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream().serving() as serving:
        yield serving


@pytest.fixture
def opening(upstream: FakeUpstream, tmp_path: Path) -> Opening:
    @asynccontextmanager
    async def opened(*, gib: float = 1.0, **limits: Any) -> AsyncIterator[Asking]:
        options = ServerOptions(
            listen=f"unix://{tmp_path}/s",
            packages="127.0.0.1:0",
            packages_cache=str(tmp_path / "packages"),
            packages_gib=gib,
            packages_pypi=f"{upstream.url}/simple",
            packages_npm=upstream.url,
            packages_debian=upstream.url,
        )
        options.check()
        connections = httpx.Limits(max_connections=200)
        async with (
            open_mirror(options, FetchLimits(**limits)) as mirror,
            httpx.AsyncClient(timeout=60, trust_env=False, limits=connections) as http,
        ):
            assert mirror is not None
            yield Asking(mirror, upstream, http, tmp_path / "packages")

    return opened


@pytest.fixture
async def asking(opening: Opening) -> AsyncIterator[Asking]:
    async with opening() as opened:
        yield opened
