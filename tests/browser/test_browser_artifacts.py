"""What comes with observations and the grade beside text: pictures, downloads, requests and the trace."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator, Iterator

import pytest

from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.local import start_embedded
from sandboxes.browser import ENV
from sandboxes.browser.catalog import BrowserTasks
from sandboxes.browser.params import BrowserParams

pytestmark = pytest.mark.timeout(300)
PARAMS = BrowserParams(pictures=True, record=True)
SOURCE = BrowserTasks(PARAMS)
TASK = next(each for each in (SOURCE.get("train", n) for n in range(22)) if each.payload == "files-number/0")
KILL_BROWSER = """
import os, pathlib, signal, time
killed = []
for each in pathlib.Path('/proc').glob('[0-9]*'):
    if int(each.name) != os.getpid() and b'--host-resolver-rules' in (each / 'cmdline').read_bytes():
        os.kill(int(each.name), signal.SIGKILL)
        killed.append(each)
while any(each.exists() for each in killed):  # until the driver has taken note
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_embedded(["--env=sandboxes.browser:ENV"]) as server:
        yield server.address


@pytest.fixture
async def env(address: str) -> AsyncIterator[AsyncEnv]:
    async with Client(address) as client:
        made = await client.make("browser", PARAMS.canonical())
        yield made
        await made.close()


async def solved(env: AsyncEnv) -> None:
    """Play the task as its reference policy does, and download a file on the way."""
    oracle = ENV.oracle(PARAMS, TASK)
    seen, _, _ = await env.reset(TASK.id, 0)
    while True:
        action = oracle(seen)
        if action.startswith("send_msg_to_user"):
            link = next(line for line in seen.splitlines() if 'link "Download"' in line)
            taken = await env.step(f'click("{link.partition("[")[2].partition("]")[0]}")')
            assert "downloaded" in taken.observation, taken
        result = await env.step(action)
        assert not result.info.get("tool_failed"), result
        seen = result.observation
        if result.terminated:
            return


async def test_pictures_come_with_observations_and_records_with_the_grade(env: AsyncEnv) -> None:
    await env.reset(TASK.id, 0)
    (first,) = env.artifacts
    assert (first.name, first.media_type) == ("page.png", "image/png")
    picture = await env.read_artifact(first.sha256)
    assert picture.startswith(b"\x89PNG\r\n")
    await env.step('goto("http://files.test/at/nowhere")')
    (second,) = env.artifacts
    assert second.sha256 != first.sha256
    await env.step("noop(")
    assert env.artifacts == (), "what is no action has no picture"
    await solved(env)
    assert (await env.evaluate()).passed
    kept = {each.name: each for each in env.artifacts}
    names = [name for name in kept if name not in ("requests.har", "trace.zip")]
    assert len(kept) == 3, kept
    assert not any(each.missing for each in kept.values()), kept
    assert b"Number" in await env.read_artifact(kept[names[0]].sha256)
    har = json.loads(await env.read_artifact(kept["requests.har"].sha256))["log"]
    assert har["version"] == "1.2"
    asked = {entry["request"]["url"]: entry["response"]["status"] for entry in har["entries"]}
    assert asked["http://files.test/at/"] == 200
    assert all(entry["time"] >= 0 for entry in har["entries"]), "each has ended"
    with zipfile.ZipFile(io.BytesIO(await env.read_artifact(kept["trace.zip"].sha256))) as trace:
        assert any(name.endswith("trace.trace") for name in trace.namelist())


async def test_a_browser_that_is_gone_costs_the_record_and_not_the_grade(env: AsyncEnv) -> None:
    await solved(env)
    box = await env.sandbox()
    assert (await box.exec(["python3", "-c", KILL_BROWSER])).ok
    verdict = await env.evaluate()
    assert (verdict.reward, verdict.passed) == (1.0, True)
    missing = {each.name: each.missing for each in env.artifacts}
    assert missing["trace.zip"]
    assert not missing["requests.har"], "what the driver itself knows is written"
