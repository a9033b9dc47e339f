"""Imports stand at the top of a module; those of ours that do not are listed here, each with its reason."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_runtime", "ale", "rock_env", "sandboxes", "trainer")
LATE = {
    "ale/algo/algorithms.py": (1, "torch, which --help does without"),
    "ale/cli.py": (1, "pydantic and all settings, which a command that has no mistake does without"),
    "ale/model/models.py": (1, "the Hugging Face hub's client, which --help does without"),
    "ale/replay/cli.py": (3, "torch, which the other replay commands do without"),
    "ale/rock/reach.py": (1, "cloudpickle, which servers and clients do without"),
    "ale/training/cli.py": (3, "torch and Ray, which --help does without"),
    "ale/training/model_play.py": (1, "Ray, which a small model plays without"),
    "ale/training/rollouts.py": (1, "torch, which an oracle plays without"),
    "ale/layers.py": (1, "torch, which other models are resolved without"),
    "ale/training/training.py": (5, "torch and Ray, which a wrong option is refused without"),
    "rock_env/backends/process/zygote.py": (
        2,
        "the warm interpreter, which only a zygote that preloads needs",
    ),
    "rock_env/server/replicas/trust/certificates.py": (1, "cryptography, which is optional"),
    "rock_env/server/replicas/sharing.py": (1, "asyncpg, which is optional"),
    "rock_env/store/open.py": (1, "asyncpg, which is optional"),
    "sandboxes/browser/box/driver.py": (1, "Playwright, whose absence is told in the box's words"),
}
"""File -> how many imports of ours stand in functions, and what they would bring."""


def late_imports() -> Counter[str]:
    """Return by file how many imports of this project's modules stand in functions."""
    found: Counter[str] = Counter()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            if any(part in ("proto", "packages", "tasks", "scaffold") for part in file.parts):
                continue
            for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    inside = (node for node in ast.walk(function) if isinstance(node, ast.ImportFrom))
                    name = str(file.relative_to(ROOT))
                    found[name] += sum((node.module or "").split(".")[0] in PACKAGES for node in inside)
    return +found


def test_imports_that_are_late_are_listed() -> None:
    assert dict(late_imports()) == {file: count for file, (count, _) in LATE.items()}
    assert sum(count for count, _ in LATE.values()) <= 25
