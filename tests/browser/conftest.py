"""What every test with a real browser needs: Chromium, Playwright, fenced boxes; and boxes of a backend of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fences import why_not_isolated

from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from sandboxes.browser import ENV

CHROMIUMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium")


def why_no_browser() -> str:
    """Return what is missing and how to get it, or an empty string."""
    if not any(os.access(path, os.X_OK) for path in CHROMIUMS):
        return "no Chromium: apt-get install chromium-headless-shell libatomic1"
    if find_spec("playwright") is None:
        return "no Playwright: pip install 'ale-rl[browser]'"
    if why := why_not_isolated():
        return f"boxes are not fenced here: {why}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip it where there is no browser."""
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    why = why_no_browser() if here else ""
    for item in here:
        item.add_marker(pytest.mark.browser)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation="namespaces")
    yield made
    await made.close()


@pytest.fixture
async def box(backend: ProcessBackend) -> AsyncIterator[Sandbox]:
    assert ENV.sandbox is not None
    made = await backend.create(ENV.sandbox, sandbox_id="browser")
    yield made
    await made.close()
