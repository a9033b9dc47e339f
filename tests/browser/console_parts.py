"""A console that serves a folder, a page in Chromium, and runs with a rollout of each kind of picture."""

from __future__ import annotations

import hashlib
import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import OF_FIRST, RecordedArtifact, Trajectory

LAKE = Path(__file__).parent / "kept" / "lake"
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--force-color-profile=srgb",
]
CHROMIUMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium")
TIMEOUT_MS = 120_000
PAGES = {
    "runs": ("#/", "tr.mark"),
    "run": ("#/run/lake", ".list .rows .row"),
    "grid": ("#/run/lake?tab=grid", "canvas[style]"),
    "board": ("#/run/lake/rollout?id=board", ".stage .board"),
    "tokens": ("#/run/lake/rollout?id=board&heat=logprob", ".token"),
    "page": ("#/run/lake/rollout?id=page", "article .shot"),
    "diff": ("#/run/lake/rollout?id=diff", "article .diff"),
    "image": ("#/run/lake/rollout?id=image", ".stage img"),
    "group": ("#/run/lake/group?id=board", ".column article"),
    "pair": ("#/pair?one=lake&first=board&other=lake&second=page", ".column article"),
    "compare": ("#/compare?runs=lake,lake-b", "figure.chart"),
    "none": ("#/no/such/page", ".problem"),
}
"""Each view of the console: where it is, and what is there once it is drawn."""
REFERENCES = ("run", "board", "tokens", "page", "diff")
"""Views that are compared with a picture of how they looked (tests/browser/references)."""
SHOP = "Instruction: find a red mug under $9\n[b01] Red mug $7.00\ncolour: (red) [blue]\n[buy now] [< prev]"
EDIT = "edit a.py\n<<<<<<<\nreturn 1\n=======\nreturn 2\n>>>>>>>"
OUTPUT = (
    "[exit code 1]\n@@ -1 +1 @@\n-return 1\n+return 2\nFAILED test_a.py::test_one\nPASSED test_a.py::test_two"
)
ROOM = "#####\n#PXO#\n#####"


@contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """Serve a folder of runs, with more words of the command, and yield the address."""
    words = [sys.executable, "-m", "ale", "console", str(folder), "--port", "0", *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def opened(address: str, *, says: str = "", **options: Any) -> Iterator[Any]:
    """Yield a page at an address; afterwards nothing of a rollout may have run, nor a script have failed.

    `says`: how the browser's own words begin that are no failure.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(each for each in CHROMIUMS if Path(each).exists())
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS, timeout=TIMEOUT_MS)
        page = browser.new_page(viewport={"width": 1200, "height": 800}, **options)
        page.set_default_timeout(TIMEOUT_MS)
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto(address)
        yield page
        assert page.evaluate("window.ran") is None
        assert [each for each in wrong if not says or not each.startswith(says)] == []
        browser.close()


def visit(page: Any, address: str, name: str) -> None:
    """Open one of `PAGES` and wait until it is drawn."""
    where, drawn = PAGES[name]
    page.evaluate("document.querySelector('.page')?.remove()")
    page.goto(f"{address}{where}")
    page.wait_for_selector(drawn)


def taken(page: Any, address: str, name: str) -> bytes:
    """Return a picture of a view as PNG, without what differs from run to run."""
    visit(page, address, name)
    page.wait_for_function("document.fonts.status === 'loaded'")
    return bytes(page.screenshot(animations="disabled", caret="hide"))


def reduced(shot: bytes) -> Any:
    """Return a picture in grey and small: letters of another font look the same, a part that is missing does not."""
    image = pytest.importorskip("PIL.Image")
    return image.open(io.BytesIO(shot)).convert("L").resize((300, 200), image.Resampling.BOX)


def write_runs(folder: Path) -> None:
    """Write two runs; the first has rollouts `board`, `page`, `diff`, `image` and `room` in its last step."""
    for name in ("lake", "lake-b"):
        copytree(LAKE, folder / name)
    base = max(read_segment(segment_path(LAKE, "step", 6)), key=lambda each: len(each.turns))
    kept = folder / "lake" / "trajectories" / "artifacts"
    kept.mkdir()
    made = [
        replace(base, id="board"),
        _of(base, "page", "webshop@1", SHOP, "click[blue]"),
        _of(base, "diff", "swe@1.0", OUTPUT, EDIT),
        replace(_of(base, "image", "browser@0.2", "Page:\n[e1] button \"Send (2)\"", "click e1"), artifacts=_shots(kept)),
        _of(base, "room", "sokoban@1", ROOM, "right"),
    ]  # fmt: skip
    write_segment(segment_path(folder / "lake", "step", 7), made)


def _of(base: Trajectory, name: str, env: str, observation: str, action: str) -> Trajectory:
    acts = len(base.turns)
    return replace(
        base, id=name, env=env, params_json="{}", task_id=f"{name}/1", group_id=name, grader_output="",
        first_observation=observation, observations=(observation,) * acts, actions=(action,) * acts,
    )  # fmt: skip


def _shots(kept: Path) -> tuple[RecordedArtifact, ...]:
    found = []
    for turn, content in ((OF_FIRST, png(b"\x20\x60\xc0")), (0, png(b"\xc0\x60\x20"))):
        digest = hashlib.sha256(content).hexdigest()
        (kept / digest).write_bytes(content)
        found.append(RecordedArtifact(turn, "page.png", "image/png", digest, len(content)))
    return tuple(found)


def png(colour: bytes, wide: int = 160, high: int = 90) -> bytes:
    """Return a PNG of one colour, three bytes."""
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress((b"\0" + colour * wide) * high)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
