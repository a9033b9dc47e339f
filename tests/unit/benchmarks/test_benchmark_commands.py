"""Every benchmark that a page names is there, and none is there that no page and no `make bench` runs."""

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(r"python -m (benchmarks\.\w+)")


def named() -> dict[str, list[str]]:
    """Return the modules that pages and the Makefile run, each with the files that name it."""
    files = [ROOT / "Makefile", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found: dict[str, list[str]] = {}
    for file in files:
        for module in _COMMAND.findall(file.read_text(encoding="utf-8")):
            found.setdefault(module, []).append(str(file.relative_to(ROOT)))
    found.pop("benchmarks.NAME", None)  # any
    return found


def test_every_benchmark_that_a_page_runs_is_there() -> None:
    assert len(named()) > 30
    assert not {module: files for module, files in named().items() if find_spec(module) is None}


def test_every_benchmark_is_run_by_a_page_or_by_make_bench() -> None:
    programs = {
        f"benchmarks.{file.stem}"
        for file in (ROOT / "benchmarks").glob("*.py")
        if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
    }
    assert programs - named().keys() == set()
