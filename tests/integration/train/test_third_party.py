"""Packages of others bring an engine and a backend by entry point alone: those of docs/extend, built, installed and run.

The guides are the packages: every file and command of theirs is taken from the page as it stands.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.store import read_segment, segment_path

ROOT = Path(__file__).parents[3]
GUIDES = ROOT / "docs" / "extend"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)"| [\w-]+)?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


REFUSED = """
from rock_env.errors import UnknownName
from trainer.models.chosen import check_model, sampler_spec
for ask in (check_model, sampler_spec):
    try:
        ask("grue")
    except UnknownName as error:
        print(error)
"""
"""What `ale train` asks of `--model` and of `sampler`, in one process."""


class Scratch:
    """Packages in the making, and a folder they are installed into; pip asks nobody.

    A guide's blocks of `sh` are the contract suites it passes, to be run in this repository.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        tools = Path(sys.executable).parent
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
            **offline,  # of this variable, pip takes 0 for "do not isolate"
            "PIP_TARGET": str(self.site),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.site),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }

    def unpack(self, guide: str) -> list[str]:
        """Write the files of a guide, and return its commands."""
        commands: list[str] = []
        for kind, title, text in _BLOCK.findall((GUIDES / guide).read_text(encoding="utf-8")):
            if title:
                file = self.folder / guide / title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            elif kind == "console":
                commands += text.strip().replace("\\\n", "").splitlines()
        return commands

    def run(self, guide: str, command: str, *, fails: bool = False) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder / guide,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def passes(self, guide: str) -> None:
        """Hold what is installed here to the contract suite that a guide names."""
        found = _BLOCK.findall((GUIDES / guide).read_text(encoding="utf-8"))
        [suite] = [text for kind, _, text in found if kind == "sh"]
        done = subprocess.run(
            ["bash", "-c", suite],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout


def updates(run: Path) -> list[float]:
    """Return how many updates of the model each step took."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["updates"] for record in records if record.get("kind") == "train"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    return Scratch(tmp_path_factory.mktemp("others"))


@pytest.mark.turn(0)
@pytest.mark.timeout(300)
def test_the_engine_of_the_guide_trains_two_steps(scratch: Scratch) -> None:
    install, train, again = scratch.unpack("engine.md")
    scratch.run("engine.md", install)
    scratch.run("engine.md", train)
    run = scratch.folder / "engine.md" / "runs" / "lake"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 2
    assert updates(run) == [1.0, 1.0]
    assert (run / "model" / "ale_gru.json").exists()
    assert "width = 32" in (run / "config.toml").read_text()
    assert 'model = "runs/lake/model"' in scratch.run("engine.md", again)
    # Without its package the model is not taken for one of Hugging Face.
    which = "from trainer.config import engine_of; engine_of('runs/lake/model')"
    bare = scratch.run("engine.md", f'PYTHONPATH= python -P -c "{which}"', fails=True)
    assert "by an engine that is not installed here: got gru, expected one of coder, hf, tiny" in bare
    scratch.passes("engine.md")
    names = scratch.run("engine.md", f"python -c '{REFUSED}'")
    assert "unknown model 'grue'. Did you mean 'gru'? Known: coder, gru, smollm2, tiny" in names
    assert "unknown engine 'grue'. Did you mean 'gru'? Known: coder, gru, hf, tiny" in names


@pytest.mark.turn(0)
@pytest.mark.timeout(300)
def test_the_backend_of_the_guide_hosts_sandboxes_of_servers_and_runs(scratch: Scratch) -> None:
    """The engine of the other guide plays in them: one environment has both."""
    install, look, train = scratch.unpack("backend.md")
    if not scratch.site.exists():
        scratch.run("engine.md", scratch.unpack("engine.md")[0])
    scratch.run("backend.md", install)
    assert "folder hello" in scratch.run("backend.md", look)
    scratch.passes("backend.md")
    scratch.run("backend.md", train)
    run = scratch.folder / "backend.md" / "runs" / "folder"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 2
    assert updates(run) == [1.0, 1.0]
    experts = list(read_segment(segment_path(run, "expert")))
    assert [expert.passed for expert in experts] == [True, True], "the oracle's solutions run on the backend"
    rollouts = [one for step in (1, 2) for one in read_segment(segment_path(run, "step", step))]
    assert len(rollouts) == 4
    assert all(one.failure is None for one in rollouts)
    serve = "ale rock serve --listen unix://$PWD/socket --backend"
    unknown = scratch.run("backend.md", f"{serve} folded", fails=True)
    assert (
        "unknown backend 'folded'. Did you mean 'folder'? Known: docker, folder, kubernetes, process"
        in unknown
    )
    option = scratch.run("backend.md", f"{serve} folder:rooms=3", fails=True)
    assert "unknown option of the folder backend 'rooms'. Known: boxes" in option
    shutil.rmtree(scratch.site)
