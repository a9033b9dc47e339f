"""No view of the console has a barrier that axe-core finds, in light or dark (`scripts/axe.sh` fetches it)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_parts import PAGES, opened, served, visit, write_runs

AXE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ale" / "axe" / "axe-4.10.3.min.js"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder)
    with served(folder) as found:
        yield found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_barrier(address: str, theme: str) -> None:
    if not AXE.is_file():
        pytest.skip(f"axe-core is not in {AXE}: run scripts/axe.sh")
    found = {}
    with opened(address, bypass_csp=True, color_scheme=theme) as page:
        for name in PAGES:
            visit(page, address, name)
            page.add_script_tag(content=AXE.read_text())
            told = page.evaluate(
                "axe.run().then((found) => found.violations.map(({id, nodes}) => [id, nodes[0].html]))"
            )
            if told:
                found[name] = told
        assert found == {}
        page.evaluate(
            "document.querySelector('main').append(Object.assign(document.createElement('img'), { src: '/page/icon.svg' }))"
        )
        assert page.evaluate("axe.run().then((found) => found.violations.map(({id}) => id))") == ["image-alt"]
