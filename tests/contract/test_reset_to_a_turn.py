"""The two ways back to a turn, the state as it was kept and the actions repeated, lead to the same place: a property.

Of every installed simulator by its state clone, and of environments with a sandbox by layers, on real boxes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fences import why_not_isolated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rock_env.backends.process.backend import ProcessBackend
from rock_env.env import observation_hash
from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.frames import Kind
from rock_env.env_workers.hosted import HostedEnv
from rock_env.errors import EnvLost, InvalidArgument, ResetDivergence
from rock_env.plugins import load_env, names
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.server.envs.boxes import EnvBoxes
from rock_env.server.envs.kept import BoxedState
from rock_env.server.envs.rules import OwnRules
from rock_env.server.envs.sandboxed import SandboxedEnv
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.spec import EnvParams
from rock_env.store.sqlite.records import SqliteStore

SIMULATORS = [name for name in names("ale.envs") if load_env(name).sandbox is None]
MOVES = ["up", "down", "left", "right", "?"]
CATALOG = Catalog([])


def hosted(name: str) -> HostedEnv:
    return HostedEnv(CATALOG, host.HostMakeItem(env_id="e", env=name, params_json="{}"))


class Simulator:
    """A hosted environment with its sequence numbers."""

    def __init__(self, name: str) -> None:
        self.env = hosted(name)
        self.sequence = 0

    def number(self) -> dict[str, Any]:
        self.sequence += 1
        return {"env_id": "e", "sequence": self.sequence, "idempotency_key": str(self.sequence)}

    def play(self, actions: list[str]) -> list[str]:
        seen = []
        for action in actions:
            reply = self.env.step(pb.StepRequest(**self.number(), action=action))
            seen.append(reply.observation)
            if reply.terminated or reply.truncated:
                break
        return seen


@pytest.mark.parametrize("name", SIMULATORS)
@settings(max_examples=25)
@given(
    task=st.integers(0, 20),
    seed=st.integers(0, 2**32),
    before=st.lists(st.sampled_from(MOVES), max_size=8),
    after=st.lists(st.sampled_from(MOVES), min_size=1, max_size=8),
)
def test_a_state_clone_is_a_replay(
    name: str, task: int, seed: int, before: list[str], after: list[str]
) -> None:
    original, clone, replay = (Simulator(name) for _ in range(3))
    where = {"task_id": f"train/{task}", "seed": seed}
    first = original.env.reset(pb.ResetRequest(**original.number(), **where)).observation
    shown = original.play(before)
    state = original.env.snapshot()
    call = pb.RestoreRequest(**clone.number(), checkpoint_id="c")
    restored = clone.env.restore(host.HostRestoreRequest(request=call, state=state))
    prefix = [
        pb.PrefixTurn(action=action, observation_hash=observation_hash(text))
        for action, text in zip(before, shown, strict=False)
    ]
    replayed = replay.env.reset(
        pb.ResetRequest(
            **replay.number(), **where, prefix=prefix, initial_observation_hash=observation_hash(first)
        )
    )
    assert restored.observation == replayed.observation == (shown or [first])[-1]
    assert clone.env.snapshot() == replay.env.snapshot() == state
    if not state.done:
        assert clone.play(after) == replay.play(after) == original.play(after)
    for each in (clone, replay):
        assert each.env.env.evaluate() == original.env.env.evaluate()
        assert each.env.snapshot() == original.env.snapshot()


@pytest.mark.parametrize(("turns", "recovered"), [(0, 1), (1, 2), (1, 5), (0, 2**64 - 1)])
def test_no_turn_is_recovered_that_the_prefix_lacks(turns: int, recovered: int) -> None:
    played = Simulator("frozen_lake")
    asked = pb.ResetRequest(
        **played.number(),
        task_id="train/0",
        prefix=[pb.PrefixTurn(action="up")] * turns,
        recovered_turn=recovered,
    )
    with pytest.raises(InvalidArgument, match=f"of 0 to {turns}, got {recovered}"):
        played.env.reset(asked)
    asked.recovered_turn = turns
    assert played.env.reset(asked).observation


class Boxed:
    """Environments with a sandbox on one backend, each made with its sequence numbers."""

    def __init__(self, core: SandboxCore) -> None:
        self.core = core
        self.boxes = EnvBoxes(core, idle_timeout_s=600.0)
        self.made = 0

    def make(self) -> SandboxedEnv:
        self.made += 1
        spec = load_env("swe")
        params: EnvParams = spec.params()
        rules = OwnRules(spec, params, CATALOG)
        return SandboxedEnv(f"e-{self.made}", spec=spec, rules=rules, boxes=self.boxes)

    @staticmethod
    async def call(env: SandboxedEnv, kind: Kind, **fields: Any) -> Any:
        number = env.journal.sequence + 1
        name = {Kind.RESET: pb.ResetRequest, Kind.STEP: pb.StepRequest, Kind.EVALUATE: pb.EvaluateRequest}
        request = name[kind](sequence=number, idempotency_key=str(number), **fields)
        return await env.call(kind, request, timeout_s=60.0)

    async def step(self, env: SandboxedEnv, action: str) -> str:
        return str((await self.call(env, Kind.STEP, action=action)).observation)

    async def checkpoint(self, env: SandboxedEnv) -> BoxedState:
        state = await env.call(Kind.SNAPSHOT, None, timeout_s=60.0)
        assert isinstance(state, BoxedState)
        return state

    async def restored(self, state: BoxedState) -> SandboxedEnv:
        env = self.make()
        await env.call(Kind.RESTORE, (None, state), timeout_s=60.0)
        return env


@pytest.fixture
def same_path_in_every_box() -> None:
    if why_not_isolated():
        pytest.skip(f"a replay needs /workspace to be the same path in every box: {why_not_isolated()}")


@pytest.fixture
async def boxed(same_path_in_every_box: None, tmp_path: Path) -> AsyncIterator[Boxed]:
    async with AsyncExitStack() as stack:
        backend = ProcessBackend(root=tmp_path, isolation="namespaces")
        stack.push_async_callback(backend.close)
        store = await stack.enter_async_context(await SqliteStore.open())
        core = await stack.enter_async_context(SandboxCore(backend, store))
        yield Boxed(core)


COMMANDS = [
    "echo {} >> log",
    "mkdir -p d{}; touch d{}/x; chmod 640 d{}/x",
    "rm -rf d{}",
    "ln -sf d{} link",
    "sed -i s/a/b{}/ *.py",
    "mv log log{} 2>/dev/null; true",
    "echo temporary > /tmp/t{}; echo home >> ~/h",
]
LOOK = (
    "cd / && find workspace home tmp | LC_ALL=C sort | while read -r f; do stat -c '%n %F %a' \"$f\"; "
    'test -f "$f" && sha256sum < "$f"; test -L "$f" && readlink "$f"; done; cd workspace'
)


@settings(
    max_examples=3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    before=st.lists(st.tuples(st.sampled_from(COMMANDS), st.integers(0, 2)), max_size=4),
    after=st.lists(st.tuples(st.sampled_from(COMMANDS), st.integers(0, 2)), min_size=1, max_size=3),
)
async def test_a_layer_is_a_replay(
    boxed: Boxed, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    env = boxed.make()
    await boxed.call(env, Kind.RESET, task_id="train/0", seed=0)
    for command, number in before:
        await boxed.step(env, command.replace("{}", str(number)))
    state = await boxed.checkpoint(env)
    assert state.snapshot_id
    by_layer = await boxed.restored(state)
    recorded = BoxedState(**{**{name: getattr(state, name) for name in state.__slots__}, "snapshot_id": ""})
    by_replay = await boxed.restored(recorded)
    looks = [await boxed.step(copy, LOOK) for copy in (env, by_layer, by_replay)]
    assert looks[0] == looks[1] == looks[2]
    for command, number in after:
        said = {
            await boxed.step(copy, command.replace("{}", str(number))) for copy in (env, by_layer, by_replay)
        }
        assert len(said) == 1
    looks = [await boxed.step(copy, LOOK) for copy in (env, by_layer, by_replay)]
    assert looks[0] == looks[1] == looks[2]
    verdicts = [await boxed.call(copy, Kind.EVALUATE) for copy in (by_layer, by_replay)]
    assert len({(verdict.reward, verdict.details) for verdict in verdicts}) == 1
    again = await boxed.checkpoint(by_layer)
    assert again.actions[: len(state.actions)] == state.actions, "a copy knows how it came to be"
    for each in (state, again):
        await boxed.boxes.drop(each.snapshot_id)
    for copy in (env, by_layer, by_replay):
        await copy.close()
    assert [(each.boxes, each.layers) for each in await boxed.core.census()] == [(0, 0)]


async def test_the_turns_of_a_restored_episode_are_counted_on(boxed: Boxed) -> None:
    env = boxed.make()
    await boxed.call(env, Kind.RESET, task_id="train/0", seed=0)
    await boxed.step(env, "true")
    state = await boxed.checkpoint(env)
    copy = await boxed.restored(state)
    assert await copy._rules.snapshot() == await env._rules.snapshot() == state.rules
    await copy.close()
    await env.close()


async def test_a_recording_that_does_not_hold_is_found_out(boxed: Boxed) -> None:
    env = boxed.make()
    await boxed.call(env, Kind.RESET, task_id="train/0", seed=0)
    await boxed.step(env, "date +%s.%N")
    state = await boxed.checkpoint(env)
    copy = await boxed.restored(state)  # a layer does not mind
    await copy.close()
    recorded = BoxedState(**{**{name: getattr(state, name) for name in state.__slots__}, "snapshot_id": ""})
    with pytest.raises(ResetDivergence, match="turn 1"):
        await boxed.restored(recorded)
    await env.close()


async def test_an_environment_whose_sandbox_was_deleted_is_lost_until_it_is_reset(boxed: Boxed) -> None:
    env = boxed.make()
    await boxed.call(env, Kind.RESET, task_id="train/0", seed=0)
    await boxed.core.delete(env._box_id)
    with pytest.raises(EnvLost, match="deleted by its user"):
        await boxed.step(env, "true")
    await boxed.call(env, Kind.RESET, task_id="train/0", seed=0)
    assert await boxed.step(env, "echo hi") == "[exit code 0]\nhi"
    await env.close()


async def test_no_turn_is_recovered_in_a_box_that_the_prefix_lacks(boxed: Boxed) -> None:
    with pytest.raises(InvalidArgument, match="of 0 to 0, got 5"):
        await boxed.call(boxed.make(), Kind.RESET, task_id="train/0", recovered_turn=5)
