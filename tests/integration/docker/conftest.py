"""What the tests of the docker backend share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from docker_engine import bundles, engine, reachable_layers

from rock_env.backends.docker.backend import DockerBackend

__all__ = ["bundles", "engine", "reachable_layers"]


@pytest.fixture
async def backend(engine: None, bundles: Path) -> AsyncIterator[DockerBackend]:
    """Yield a backend without a state folder: what it made ends with the test."""
    made = DockerBackend(bundles=bundles)
    yield made
    await made.close()
