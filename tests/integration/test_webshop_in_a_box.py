"""The web site of the shop in a real sandbox: served there, visited there, and judged out here by what was bought."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fences import why_not_isolated

import sandboxes.webshop.serve
from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import CommandEnd, Sandbox
from rock_env.spec import Resources, SandboxSpec
from sandboxes.webshop import ENV
from sandboxes.webshop.oracle import plan
from sandboxes.webshop.params import WebshopParams, shop_of
from sandboxes.webshop.product import goal_of
from sandboxes.webshop.shop import Visit

PACKAGES = ("bm25s", "pydantic", "rapidfuzz")
PARAMS = WebshopParams(products=200, kinds=12)
VISITOR = Path(__file__).parents[1] / "webshop_visitor.py"
VISIT = """
import json, sys
from webshop_visitor import Visitor
visitor = Visitor(int(sys.argv[1]))
print(json.dumps([visitor.act(action) for action in json.loads(sys.argv[2])]))
"""


@pytest.fixture
def isolation() -> str:
    return "none" if why_not_isolated() else "namespaces"


@pytest.fixture
async def box(tmp_path: Path, isolation: str) -> AsyncIterator[Sandbox]:
    backend = ProcessBackend(root=tmp_path, isolation=isolation, python_packages=PACKAGES)
    spec = SandboxSpec(resources=Resources(memory_bytes=1 << 30, disk_bytes=64 << 20, pids=64))
    yield await backend.create(spec, sandbox_id="box")
    await backend.close()


@pytest.fixture
def sources() -> dict[str, bytes]:
    """Return what the server imports of ours, and the visitor."""
    root = Path(sandboxes.webshop.serve.__file__).parents[2]
    needed = [f"rock_env/{name}.py" for name in ("env", "errors", "sandbox", "spec", "task_spec", "tasks")]
    needed += [f"sandboxes/webshop/{path.name}" for path in (root / "sandboxes" / "webshop").glob("*.py")]
    return {name: (root / name).read_bytes() for name in needed} | {
        "webshop_visitor.py": VISITOR.read_bytes()
    }


async def test_a_shop_served_in_a_sandbox_sells_what_the_text_mode_sells(
    box: Sandbox, sources: dict[str, bytes]
) -> None:
    for path, content in sources.items():
        await box.write_file(path, content)
    task = ENV.tasks(PARAMS).get("train", 0)
    goal = goal_of(task.payload)
    server = await box.start_process(
        [
            *("rock-python", "-m", "sandboxes.webshop.serve", "--text", goal.text),
            *("--params", PARAMS.canonical()),
        ]
    )
    actions = [action for _, action in plan(PARAMS, goal).steps]
    said = b""
    async with box.process_logs(server, follow=True) as log:
        async for event in log.events():
            assert not isinstance(event, CommandEnd), (event, said)
            said += event.data
            if said.count(b"\n") == 1:
                visit = ["rock-python", "-c", VISIT, said.decode().strip(), json.dumps(actions)]
                done = await box.exec(visit)
                assert json.loads(done.stdout) == [True] * len(actions), done
            if said.count(b"\n") >= 2:
                break
    sold = json.loads(said.split(b"\n")[1])
    bought = Visit(**{**sold, "chosen": tuple((name, value) for name, value in sold["chosen"])})
    shop = shop_of(PARAMS)
    shop.check(bought)
    assert shop.score(bought, goal).reward == 1.0
