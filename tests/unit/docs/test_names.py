"""Files and modules that the pages name are there."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from pages import ROOT, markdown_files, prose

FOLDERS = "ale|trainer|agent_runtime|rock_env|sandboxes|tests|docs|benchmarks|examples|scripts"
_PATH = re.compile(rf"`((?:{FOLDERS})/[a-zA-Z0-9_./-]+)`")
_NAME = re.compile(r"`((?:ale|trainer|agent_runtime|rock_env|sandboxes|benchmarks)(?:\.\w+)+)(?:\([^`]*\))?`")
PACKAGES = ("agent_runtime", "ale", "rock_env", "sandboxes", "trainer")
GROUPS = {
    f"ale.{group}"
    for group in (
        "agents",
        "algorithms",
        "backends",
        "engines",
        "envs",
        "libraries",
        "observers",
        "parallelisms",
        "rewards",
        "scans",
    )
}
"""Groups of entry points."""
OF_A_TASK = {"tests/test.sh"}
"""Files of a task's folder, not of this repository."""
PAGES = [
    pytest.param(path, id=str(path.relative_to(ROOT)))
    for path in markdown_files()
    if path.name != "CHANGELOG.md" and path.parent.name != "adr"  # which tell of what was
]


@pytest.mark.parametrize("page", PAGES)
def test_named_files_are_there(page: Path) -> None:
    for name in _PATH.findall(prose(page)):
        if name in OF_A_TASK or re.search(r"\b[A-Z]{2,}\b", name.replace("README", "")):  # ENV.toml: any
            continue
        assert (ROOT / name).exists() or (page.parent / name).exists(), name


@pytest.mark.parametrize("page", PAGES)
def test_named_modules_are_there(page: Path) -> None:
    for name in _NAME.findall(prose(page)):
        if name not in GROUPS:
            assert _is_a_value_of_the_chart(name) or _resolves(name), name


def _is_a_value_of_the_chart(name: str) -> bool:
    """Return whether helm/rock has such a value: `sandboxes` is a group of them as well as a package."""
    found = yaml.safe_load((ROOT / "helm/rock/values.yaml").read_text(encoding="utf-8"))
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def _resolves(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            fields = getattr(found, "model_fields", None) or getattr(found, "__dataclass_fields__", {})
            if not hasattr(found, attribute) and attribute not in fields:
                return False
            found = getattr(found, attribute, None)
        return True
    return False


def test_no_module_says_who_calls_it() -> None:
    """Imports tell it, and a sentence about it is false as soon as they change."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 400
    assert not [
        str(path.relative_to(ROOT)) for path in files if "Called by " in path.read_text(encoding="utf-8")
    ]
