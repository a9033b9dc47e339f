"""The edits of docs/extend/call-and-metric.md, in a copy of the tree: few files, and everything else comes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from secure_servers import SERVER, serving, token
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from unit.docs.pages import ROOT, Block, blocks

PAGE = ROOT / "docs" / "extend" / "call-and-metric.md"
PACKAGES = ("agent_runtime", "ale", "rock_env", "sandboxes", "trainer")
ASK = """
import asyncio, sys
from rock_env.client.admin import AdminClient
from rock_env.client.credentials import Credentials

async def ask():
    async with AdminClient(sys.argv[1], credentials=Credentials(token=sys.argv[2])) as client:
        print(await client.uptime_s())

asyncio.run(ask())
"""
RUN = """
import sys
from pathlib import Path
from local_fleet import config_of, local_run

local_run(Path(sys.argv[1]), config_of())
"""


def edited(folder: Path, section: str, *, most_files: int) -> Path:
    """Return a copy of the tree with the edits that a section of the page prints, in so many files at most."""
    shown = [block for block in blocks(PAGE) if block.language == "diff" and block in _of(section)]
    by_hand = {block.title for block in shown}
    assert 0 < len(by_hand) <= most_files
    copied = {file.partition("/")[0] for file in by_hand} | {"docs", "scripts"}
    for part in copied:
        left_out = shutil.ignore_patterns("__pycache__", "results")
        shutil.copytree(ROOT / part, folder / part, ignore=left_out)
    for part in set(PACKAGES) - copied:
        (folder / part).symlink_to(ROOT / part)
    for block in shown:
        lines = block.text.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] == " ")
        after = "".join(line[1:] for line in lines)
        text = (folder / block.title).read_text(encoding="utf-8")
        assert text.count(before) == 1, (
            f"{block.title} no longer holds the lines beside which the page edits it"
        )
        (folder / block.title).write_text(text.replace(before, after), encoding="utf-8")
    return folder


def _of(section: str) -> list[Block]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [block for block in blocks(PAGE) if block.text in text]


def python(folder: Path, *words: str, more: tuple[str, ...] = (), code: int = 0) -> str:
    """Run Python with the packages of a copy of the tree; return what it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *more))},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = edited(tmp_path / "tree", "A call", most_files=4)
    python(folder, "scripts/gen_protos.py")
    python(folder, "scripts/security_surface.py")
    surface = (folder / "docs" / "security-surface.md").read_text(encoding="utf-8")
    for way in ("`/rock.v1.AdminService/Uptime` | one → one", "GET | `/v1/uptime`"):
        assert f"| {way} | `admin` |" in surface
    tokens = tmp_path / "tokens.json"
    operator, tenant = token(tokens, "ops", "admin"), token(tokens, "blue", "env", "sandbox")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with serving([*SERVER, f"--tokens={tokens}", "--http=127.0.0.1:0"], tmp_path) as (process, address):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert float(python(folder, "-c", ASK, address, operator)) > 0
        assert "PermissionDenied" in python(folder, "-c", ASK, address, tenant, code=1)
        asked = [
            httpx.get(
                f"{url}/v1/uptime", headers={"authorization": f"Bearer {key}"} if key else {}, timeout=60
            )
            for key in (operator, tenant, "")
        ]
        assert [each.status_code for each in asked] == [200, 403, 401]
        assert asked[0].json()["seconds"] > 0
        assert "get" in httpx.get(f"{url}/openapi.json", timeout=60).json()["paths"]["/v1/uptime"]


@pytest.mark.timeout(300)
def test_a_number(tmp_path: Path) -> None:
    folder = edited(tmp_path / "tree", "A number", most_files=2)
    tests = (str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "trainer"))
    python(folder, "-c", RUN, str(tmp_path / "run"), more=tests)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    trained = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    assert trained
    assert all(1 <= record["turns/longest"] <= 6 for record in trained)
    shown = EventAccumulator(str(tmp_path / "run" / "events")).Reload()
    assert "train/turns/longest" in shown.Tags()["scalars"]
