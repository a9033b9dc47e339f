"""What tests of training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ray_cluster import ray_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ray cluster for runs that go to their end; a run that is killed or stopped starts its own."""
    with ray_cluster(tmp_path_factory.mktemp("ray")) as address:
        yield address
