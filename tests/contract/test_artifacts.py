"""Files that an environment attaches: read and hashed by the server, kept within bounds, served by digest, recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent_runtime.agents.oracle import record_expert
from agent_runtime.artifacts import Keeping, artifact_path, folder_in
from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import OF_FIRST, OF_GRADE, AgentConfig, RolloutRequest, SamplingParams, Start
from ale.training.rollouts import ByteTemplate
from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.errors import NotFound
from rock_env.local import start_embedded

pytestmark = pytest.mark.timeout(300)
ENVS = Path(__file__).parent / "attaching_envs.py"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_embedded([f"--env={ENVS}:ATTACHING", "--isolation=none"]) as server:
        yield server.address


@pytest.fixture
async def env(address: str) -> AsyncIterator[AsyncEnv]:
    async with Client(address) as client:
        made = await client.make("attaching", "{}")
        await made.reset("train/0", 0)
        yield made
        await made.close()


async def attach(env: AsyncEnv, *paths: str, **more: object) -> None:
    await env.step(json.dumps({"attach": paths, **more}))


async def test_each_reply_comes_with_its_own_files_and_their_bytes_are_read_by_digest(env: AsyncEnv) -> None:
    (first,) = env.artifacts
    assert (first.name, first.media_type, first.size) == ("first.txt", "text/plain", 5)
    assert first.sha256 == digest(b"first")
    assert await env.read_artifact(first.sha256) == b"first"
    await attach(env, "a.txt", "deep/b.bin", write={"a.txt": "a", "deep/b.bin": "b"})
    assert [(each.name, each.sha256) for each in env.artifacts] == [
        ("a.txt", digest(b"a")),
        ("b.bin", digest(b"b")),
    ]
    await attach(env)
    assert env.artifacts == ()
    await env.evaluate()
    last, gone = env.artifacts
    assert last.sha256 == digest(b"last")
    assert (gone.sha256, gone.size) == ("", 0)
    assert "gone.txt" in gone.missing
    for each in (b"first", b"a", b"b", b"last"):
        assert await env.read_artifact(digest(each)) == each


async def test_they_are_gone_with_the_episode_and_nobody_elses(env: AsyncEnv, address: str) -> None:
    sha256 = env.artifacts[0].sha256
    async with Client(address) as client:
        other = await client.make("attaching", "{}")
        with pytest.raises(NotFound):
            await other.read_artifact(sha256)
        await other.close()
    for wrong in ("", "0" * 64, "../../etc/passwd"):
        with pytest.raises(NotFound, match="has no artifact"):
            await env.read_artifact(wrong)
    await attach(env, "only.txt", write={"only.txt": "only"})
    await env.reset("train/0", 0)
    with pytest.raises(NotFound):
        await env.read_artifact(digest(b"only"))
    await env.close()
    with pytest.raises(NotFound):
        await env.read_artifact(sha256)


async def test_what_cannot_be_read_is_named_with_why_and_the_step_goes_on(env: AsyncEnv) -> None:
    await attach(env, "large.bin", write={"large.bin": "0123456789abcdef"}, times=(1 << 20) + 1)
    assert "more than 16777216 bytes" in env.artifacts[0].missing
    await attach(env, *(f"{number}.txt" for number in range(40)))
    assert len(env.artifacts) == 32
    await attach(env, "/etc/shadow", "../../../etc/hostname", "link", run=["ln", "-s", "/etc/shadow", "link"])
    assert all(each.missing for each in env.artifacts), env.artifacts
    await attach(env, "pipe", "a.txt", run=["mkfifo", "pipe"], write={"a.txt": "a"})
    pipe, file = env.artifacts
    assert pipe.missing
    assert file.sha256 == digest(b"a") or file.missing, "a file that never ends takes the reply's time"
    assert (await env.evaluate()).passed


async def test_an_episode_has_a_bound_of_bytes(env: AsyncEnv) -> None:
    kept = []
    for number in range(6):
        name = f"{number}.bin"
        await attach(env, name, write={name: f"{number:016}"}, times=1 << 20)
        kept.append(not env.artifacts[0].missing)
    assert kept == [True, True, True, False, False, False], "3 of 16 MiB and the first file, of 64 MiB"
    assert "an episode has at most" in env.artifacts[0].missing
    await env.reset("train/0", 0)
    await attach(env, "0.bin", write={"0.bin": "0123456789abcdef"}, times=1 << 20)
    assert not env.artifacts[0].missing, "a new episode has all of it again"


async def test_a_rollout_records_digests_and_its_folder_has_the_bytes(address: str, tmp_path: Path) -> None:
    request = RolloutRequest(
        id="r",
        env="attaching",
        params_json="{}",
        task_id="train/0",
        group_id="g",
        index=0,
        seed=0,
        agent=AgentConfig(max_turns=2),
        sampling=SamplingParams(),
        start=Start(env_seed=0),
    )
    action = json.dumps({"write": {"a.txt": "a"}, "attach": ["a.txt"]})
    async with Client(address) as client:
        played = await record_expert(
            request,
            rock=Keeping(client, folder_in(tmp_path)),
            oracle=lambda observation: action,
            template=ByteTemplate(),
        )
    assert played.failure is None, played.failure
    path = segment_path(tmp_path, "rollout")
    write_segment(path, [played])
    (read,) = read_segment(path)
    assert read.artifacts == played.artifacts
    assert [(each.turn, each.name, each.sha256) for each in read.artifacts] == [
        (OF_FIRST, "first.txt", digest(b"first")),
        (0, "a.txt", digest(b"a")),
        (1, "a.txt", digest(b"a")),
        (OF_GRADE, "last.txt", digest(b"last")),
        (OF_GRADE, "gone.txt", ""),
    ]
    kept = {each.name: each.read_bytes() for each in folder_in(tmp_path).iterdir()}
    assert kept == {digest(each): each for each in (b"first", b"a", b"last")}
    assert artifact_path(folder_in(tmp_path), digest(b"a")).is_file()
