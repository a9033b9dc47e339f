"""What tests of training share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_cluster import ray_cluster

PLANTED = Path(__file__).parents[2] / "planted"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ray cluster for runs that go to their end; a run that is killed or stopped starts its own."""
    with ray_cluster(tmp_path_factory.mktemp("ray")) as address:
        yield address


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the plugins with a bug each as a package would be."""
    folder = tmp_path_factory.mktemp("site")
    about = folder / "planted-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    shutil.copy(PLANTED / "entry_points.txt", about)
    shutil.copy(PLANTED / "planted.py", folder)
    return folder
