"""Where boxes of the escape suite come from: every backend that this machine can run."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from boxes import Boxes

from rock_env.backends.base import Backend
from rock_env.backends.docker.backend import DockerBackend
from rock_env.backends.process.backend import ProcessBackend

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from docker_engine import TOOLS, bundles, engine  # noqa: F401  fixtures


@pytest.fixture(params=["process", "process-warm", "docker"])
async def boxes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Boxes]:
    backend: Backend
    if request.param == "docker":
        request.getfixturevalue("engine")
        backend, image = DockerBackend(bundles=request.getfixturevalue("bundles")), TOOLS
    else:
        backend, image = ProcessBackend(root=tmp_path / "node", isolation="namespaces"), ""
    yield Boxes(backend, image, ("pytest",) if request.param == "process-warm" else ())
    await backend.close()
