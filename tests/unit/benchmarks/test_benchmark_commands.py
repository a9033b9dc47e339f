"""Every benchmark that a page names is there and says how it is called; each is named by a page or by `make bench`."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(r"python -m (benchmarks\.\w+)")
PROGRAMS = {
    f"benchmarks.{file.stem}"
    for file in (ROOT / "benchmarks").glob("*.py")
    if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
}


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
    assert PROGRAMS - named().keys() == set()


@pytest.mark.parametrize("name", sorted(PROGRAMS - {"benchmarks.claims"}))  # whose words are pages
def test_every_benchmark_can_be_imported_and_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # one of them sets it as it is imported
    module = import_module(name)
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        module.main()
    assert (module.__doc__ or "").splitlines()[0] in capsys.readouterr().out
