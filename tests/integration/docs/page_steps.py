"""The steps of a page of docs, carried out as printed: files are written, commands run, packages put on the path.

A fenced block with a file's name (```` ```python mine/mine.py ````) is written there. A block of `sh` runs in bash and must
exit with 0. The word after `sh` says what a step needs: `docker`, `in-the-repository`, or `by-hand`, which is left to the
reader because a test has it already. `pip install` of a folder puts its modules and entry points on the path, as pip would,
without the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from unit.docs.pages import ROOT, Block, blocks

_PIP = '''#!{python}
"""Stands for pip: `pip install -e ./FOLDER` puts the folder's modules and entry points on the path."""
import pathlib, shutil, sys, tomllib
verb, *rest = sys.argv[1:]
(folder,) = [pathlib.Path(word) for word in rest if not word.startswith("-")]
assert verb == "install" and folder.is_dir(), sys.argv
settings = tomllib.loads((folder / "pyproject.toml").read_text())
project, site = settings["project"], pathlib.Path({site!r})
for module in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]:
    shutil.copy(folder / module, site)
info = site / f"{{project['name'].replace('-', '_')}}-{{project['version']}}.dist-info"
info.mkdir()
(info / "METADATA").write_text(f"Name: {{project['name']}}\\nVersion: {{project['version']}}\\n")
(info / "entry_points.txt").write_text("".join(
    f"[{{group}}]\\n" + "".join(f"{{name}} = {{value}}\\n" for name, value in entries.items())
    for group, entries in project["entry-points"].items()
))
'''


class Steps:
    """A page, and the folder in which it is followed."""

    def __init__(self, page: str, folder: Path) -> None:
        self.blocks = self.blocks_of(page)
        self.folder = folder / "work"
        self._site, self._bin = folder / "site", folder / "bin"
        for each in (self.folder, self._site, self._bin):
            each.mkdir()
        pip = self._bin / "pip"
        pip.write_text(_PIP.format(python=sys.executable, site=str(self._site)), encoding="utf-8")
        pip.chmod(0o755)
        self._home = folder / "home"

    @staticmethod
    def blocks_of(page: str) -> list[Block]:
        """The page's blocks, without a folder to follow it in."""
        return blocks(ROOT / "docs" / page)

    def follow(self, *, without: Collection[str] = (), only: Collection[str] | None = None) -> str:
        """Carry out the steps in order; return all that was printed.

        `without` leaves out steps that need these, `only` takes no others (files are written in any case).
        """
        said, left_out = [], {*without, "by-hand"}
        for block in self.blocks:
            if block.language in ("python", "toml") and block.name:
                self._write(block)
            elif (
                block.language == "sh" and block.name not in left_out and (only is None or block.name in only)
            ):
                said.append(self._run(block))
        return "".join(said)

    def _write(self, block: Block) -> None:
        place = self.folder / block.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.text, encoding="utf-8")

    def _run(self, block: Block) -> str:
        tools = os.pathsep.join([str(self._bin), str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=ROOT if block.name == "in-the-repository" else self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PATH": tools,
                "PYTHONPATH": os.pathsep.join([str(self._site), *filter(None, sys.path)]),
                "OMP_NUM_THREADS": "1",
                "ALE_HOME": str(self._home),
            },
            check=False,
            timeout=500,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"
        return done.stdout
