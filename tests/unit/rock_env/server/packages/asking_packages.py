"""Somebody who asks a mirror that has an upstream of the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx
from package_upstream import FakeUpstream

from rock_env.server.packages.mirror import PackageMirror


@dataclass
class Asking:
    mirror: PackageMirror
    upstream: FakeUpstream
    http: httpx.AsyncClient
    folder: Path

    async def get(self, path: str, tenant: str = "blue") -> httpx.Response:
        return await self.http.get(f"{self.mirror.url(tenant)}/{path}")

    @property
    def kept(self) -> list[Path]:
        """Return the files that the cache holds, the partial ones too."""
        return [
            path
            for part in ("files", "partial")
            for path in (self.folder / part).rglob("*")
            if path.is_file()
        ]


Opening = Callable[..., AbstractAsyncContextManager[Asking]]
