"""Draw the pictures of `ale console` that README and docs/console.md show, and the references of tests/browser.

    python scripts/console_shots.py

The run is a kept one (tests/browser/kept/lake: `ale train --env frozen_lake --algo ipa`, six steps). Wants what the tests of
tests/browser want, Chromium and Playwright, and Pillow. Look at what it drew before you commit it.
"""

from __future__ import annotations

import io
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "browser"
PARTS = runpy.run_path(str(TESTS / "console_parts.py"))
SHOWN = {
    "console-run": ("#/run/lake-b", ".list .rows .row"),
    "console-rollout": ("#/run/lake-b/rollout?id=000006-0001-003&heat=logprob", ".token"),
}
"""Pictures of docs/pictures: where the view of each is, and what is there once it is drawn."""


def main() -> int:
    """Draw all of them; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        PARTS["write_runs"](Path(folder))
        with PARTS["served"](Path(folder)) as address, PARTS["opened"](address) as page:
            PARTS["PAGES"].update(SHOWN)
            for view in SHOWN:
                _save(_shot(page, address, view), ROOT / "docs" / "pictures" / f"{view}.png")
            for view in PARTS["REFERENCES"]:
                small = PARTS["reduced"](PARTS["taken"](page, address, view))
                _save(small, TESTS / "references" / f"{view}.png")
    return 0


def _shot(page: Any, address: str, view: str) -> Image.Image:
    return Image.open(io.BytesIO(PARTS["taken"](page, address, view))).convert("RGB")


def _save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    picture.save(path, optimize=True)
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    sys.exit(main())
