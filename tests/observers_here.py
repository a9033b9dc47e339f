"""Observers of metrics that a test installs for the processes that it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.observers.base import GROUP


@contextmanager
def installed(folder: Path, observers: Mapping[str, str]) -> Iterator[None]:
    """Let `name: value` be entry points of a package `mine`, whose modules lie in the folder."""
    about = folder / "mine-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    lines = [f"{name} = {value}\n" for name, value in observers.items()]
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield
