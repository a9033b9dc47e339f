"""The steps of a page of docs, carried out as printed: files are written, commands run, packages put on the path.

A fenced block with a title (`python title="mine/mine.py"`) is written to that file. A block of `sh` runs in bash and must
exit with 0. The word after `sh` says what a step needs or belongs to: `docker`, `in-the-repository`, a part of the page, or
`by-hand`, which is left to the reader because a test has it already. `pip install` builds for real, into a folder on the
path, without the network. A block of `text` behind one of `sh` is what that prints, shortened: each of its lines must come,
in this order, with other numbers; `…` stands for anything. `text example` is what a run may print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from unit.docs.pages import ROOT, Block, blocks

_OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
"""Of the last but one, pip takes 0 for "do not isolate"."""
_NOT_THE_READERS = "PIP_"
"""Variables of this machine, which who follows a page has not."""


class Steps:
    """A page, and the folder in which it is followed."""

    def __init__(self, page: str, folder: Path) -> None:
        self.blocks = self.blocks_of(page)
        self.folder, self._site = folder / "work", folder / "site"
        self.folder.mkdir()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_NOT_THE_READERS)},
            **_OFFLINE,
            "PIP_TARGET": str(self._site),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(self._site), *filter(None, sys.path)]),
            "OMP_NUM_THREADS": "1",
            "ALE_HOME": str(folder / "home"),
        }

    @staticmethod
    def blocks_of(page: str) -> list[Block]:
        """The page's blocks, without a folder to follow it in."""
        return blocks(ROOT / "docs" / page)

    def follow(self, *, without: Collection[str] = (), only: Collection[str] | None = None) -> str:
        """Carry out the steps in order; return all that was printed.

        `without` leaves out steps that need these, `only` takes no others (files are written in any case).
        """
        said, left_out, newest = [], {*without, "by-hand"}, ""
        for block in self.blocks:
            if block.title:
                self._write(block)
            elif block.language == "sh":
                newest = ""
                if block.mark not in left_out and (only is None or block.mark in only):
                    newest = self._run(block)
                    said.append(newest)
            elif block.language == "text" and not block.mark and newest:
                check_shown(block.text, newest)
        return "".join(said)

    def _write(self, block: Block) -> None:
        place = self.folder / block.title
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.text, encoding="utf-8")

    def _run(self, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=ROOT if block.mark == "in-the-repository" else self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            check=False,
            timeout=500,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}"
        return done.stdout


def check_shown(shown: str, said: str) -> None:
    """Fail where a line that a page shows is not among those that were printed, behind the one before it."""
    lines = iter([" ".join(line.split()) for line in said.splitlines()])
    for line in filter(None, (" ".join(each.split()) for each in shown.splitlines())):
        parts = re.split(r"(…|\d[\d,.:]*)", line)
        pattern = "".join(
            ".*" if part == "…" else r"\d[\d,.:]*" if number % 2 else re.escape(part)
            for number, part in enumerate(parts)
        )
        assert any(re.fullmatch(pattern, each) for each in lines), f"the page shows {line!r}, got\n{said}"
