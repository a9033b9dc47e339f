"""New weights reach samplers side by side; one that dies or hangs is replaced, and counts again once it has shown them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from ray.exceptions import ActorDiedError

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from trainer.errors import Halted
from trainer.processes.serving import Published, Replacing, Serving
from trainer.samplers.arrival import Arrived


class Call:
    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        self.remote = function


class Actor:
    """A sampler's process. What it does with a load is `on_load`: what that returns or raises."""

    def __init__(self, on_load: Callable[[int], Awaitable[Any]] | None = None) -> None:
        self.loaded: list[int] = []
        self.on_load = on_load or self.arrives
        self.dies: asyncio.Future[None] | None = None
        self.load, self.outlive, self.sample = Call(self._load), Call(self._outlive), Call(self._sample)

    async def _load(self, weights: str, version: int) -> Any:
        assert weights == f"weights {version}"
        answer = await self.on_load(version)
        self.loaded.append(version)
        return answer

    async def arrives(self, version: int) -> Arrived:
        return Arrived(version, {"w": f"float32:{version}"})

    async def _outlive(self) -> None:
        self.dies = asyncio.get_running_loop().create_future()
        await self.dies

    async def _sample(self, requests: list[SampleRequest]) -> list[str]:
        return [request.rollout_id for request in requests]


async def dies(version: int) -> Any:
    raise ActorDiedError


async def hangs(version: int) -> Any:
    await asyncio.Event().wait()


async def other(version: int) -> Any:
    return Arrived(version, {"w": "float32:other"})


def weights(version: int) -> Published:
    return Published(f"weights {version}", version, {"w": f"float32:{version}"})


class Run:
    """Two samplers, and what takes their place in turn."""

    def __init__(
        self, *actors: Actor, spare: tuple[Actor, ...] = (), replaces: bool = True, load_s: float = 0
    ) -> None:
        self.spare, self.introduced = list(spare), list[tuple[int, Actor, list[int]]]()
        self.may_start = asyncio.Event()
        self.may_start.set()
        how = Replacing(self.start, self.introduce, load_s=load_s, back_s=60)
        self.serving = Serving(actors, kept=2, replacing=how if replaces else None)

    async def start(self, number: int) -> Actor:
        await self.may_start.wait()
        return self.spare.pop(0)

    async def introduce(self, number: int, actor: Actor) -> None:
        self.introduced.append((number, actor, list(actor.loaded)))

    def __enter__(self) -> Run:
        self.serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.serving.__exit__()

    def does(self, work: Any) -> Any:
        return self.serving.asked(work).result(timeout=60)

    def serve(self, version: int) -> int:
        self.does(self.serving.keep(weights(version)))
        served: int = self.does(self.serving.serve(version))
        return served

    def until_back(self) -> None:
        async def replaced() -> None:
            await asyncio.gather(*(each.replacing for each in self.serving._samplers if each.replacing))

        self.does(replaced())

    def lets_start(self, may: bool) -> None:
        async def change() -> None:
            (self.may_start.set if may else self.may_start.clear)()

        self.does(change())


@pytest.fixture(params=[dies, hangs])
def fault(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_one_that_is_lost_at_a_load_comes_back_with_the_newest_version(fault: Any) -> None:
    good, bad, new = Actor(), Actor(), Actor()
    with Run(good, bad, spare=(new,)) as run:
        assert run.serve(3) == 3
        assert run.serving.holding() == [3, 3]
        bad.on_load = fault
        run.lets_start(False)
        assert run.serve(4) == 4
        assert run.serving.holding() == [4, -1]
        assert run.serving.counts() == {"samplers/lost": 1, "samplers/back": 0, "samplers/up": 1}
        assert run.serve(6) == 6  # it is waited for by nobody
        run.lets_start(True)
        run.until_back()
        assert run.serving.holding() == [6, 6]
        assert run.introduced == [(1, new, [6])]
        assert run.serving.counts() == {"samplers/lost": 1, "samplers/back": 1, "samplers/up": 2}
        lost, back = run.serving.news()
        assert run.serving.news() == []
        assert run.serve(7) == 7
    why = {
        dies: "the worker process died (it was killed or crashed)",
        hangs: "it did not answer a load within 0 s",
    }
    assert (lost.kind, back.kind) == ("fault", "recovery")
    assert lost.message.startswith(
        f"sampler 2 of 2 was lost: {why[fault]}. Its rollouts go on with the others"
    )
    assert back.message == "sampler 2 of 2 is back and holds version 6"
    assert (good.loaded, bad.loaded, new.loaded) == ([3, 4, 6, 7], [3], [6, 7])


def test_a_version_that_comes_while_one_comes_back_is_loaded_before_it_counts() -> None:
    good, new = Actor(), Actor()

    async def late(version: int) -> Arrived:
        if version == 1:
            await run.serving.keep(weights(2))
            await run.serving.serve(2)
        return await new.arrives(version)

    new.on_load = late
    with Run(good, Actor(dies), spare=(new,), load_s=60) as run:
        run.serve(1)
        run.until_back()
        assert run.introduced == [(1, new, [1, 2])]
        assert run.serving.holding() == [2, 2]


def test_the_end_of_a_process_is_noticed_without_a_load() -> None:
    bad, new = Actor(), Actor()
    with Run(Actor(), bad, spare=(new,)) as run:
        run.serve(1)

        async def die() -> None:
            assert bad.dies is not None
            bad.dies.set_exception(ActorDiedError())
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        run.does(die())
        run.until_back()
        assert run.introduced == [(1, new, [1])]
        assert run.serving.counts()["samplers/lost"] == 1


def test_one_that_dies_whenever_it_comes_back_is_given_up() -> None:
    with Run(Actor(), Actor(dies), spare=(Actor(dies), Actor(hangs), Actor(dies))) as run:
        assert run.serve(1) == 1
        run.until_back()
        assert run.serve(2) == 2
        assert run.serving.counts() == {"samplers/lost": 1, "samplers/back": 0, "samplers/up": 1}
        assert run.serving.news()[1].message.startswith(
            "sampler 2 of 2 is gone: it was lost 3 times before it was back"
        )


def test_where_all_are_lost_one_that_comes_back_is_waited_for_and_none_ends_the_run() -> None:
    with Run(Actor(dies), spare=(Actor(),)) as run:
        assert run.serve(1) == 1
        assert run.serving.holding() == [1]
    spare = tuple(Actor(dies) for _ in range(6))
    with Run(Actor(dies), Actor(dies), spare=spare) as run:  # noqa: SIM117
        with pytest.raises(
            Halted, match=r"no sampler is left: all 2 were lost, and none came back.*--resume"
        ):
            run.serve(1)


def test_weights_that_did_not_arrive_end_the_run_also_where_a_sampler_came_back() -> None:
    with (
        Run(Actor(), Actor(other)) as run,
        pytest.raises(Halted, match="sampler 2 of 2 has another tensor 'w'"),
    ):
        run.serve(1)
    with Run(Actor(), Actor(dies), spare=(Actor(other),)) as run:
        run.serve(1)
        with pytest.raises(Halted, match="sampler 2 of 2 has another tensor 'w'"):
            run.until_back()
        assert not run.introduced
        with pytest.raises(Halted, match="sampler 2 of 2 has another tensor 'w'"):
            run.serve(2)


def test_without_replacing_the_first_loss_ends_the_run() -> None:
    with Run(Actor(), Actor(dies), replaces=False) as run:
        with pytest.raises(Halted, match=r"the worker process died.*continue with --resume"):
            run.serve(1)
        assert run.serving.counts() == {}
        assert run.serving.news() == []


def test_weights_are_loaded_once_anew_where_others_have_their_number_and_an_older_one_serves_the_oldest_kept() -> (
    None
):
    actor = Actor()
    with Run(actor, replaces=False) as run:
        run.does(run.serving.bring(weights(0), anew=True))
        run.does(run.serving.bring(weights(0), anew=True))
        assert run.serve(0) == 0
        assert run.does(run.serving.serve(0)) == 0
        assert actor.loaded == [0, 0, 0]
        run.serve(1)
        run.serve(2)
        assert run.does(run.serving.serve(0)) == 1
        assert actor.loaded == [0, 0, 0, 1, 2, 1]


def test_answers_are_in_the_order_of_what_was_asked() -> None:
    asked = prompts(5)
    with Run(Actor(), Actor()) as run:
        assert run.does(run.serving.sample(asked)) == ["r0", "r1", "r2", "r3", "r4"]


def prompts(count: int) -> list[SampleRequest]:
    ids = np.arange(5, dtype=np.int32)
    return [SampleRequest(f"r{n}", 0, ids, SamplingParams(max_tokens=3), n) for n in range(count)]


def dies_now(run: Run, actor: Actor) -> None:
    async def die() -> None:
        assert actor.dies is not None
        actor.dies.set_exception(ActorDiedError())

    run.does(die())


def test_nobody_waits_for_a_load_to_hear_that_all_are_gone() -> None:
    with Run(only := Actor(), spare=(Actor(dies), Actor(dies), Actor(dies))) as run:
        run.serve(1)
        failing = run.serving.asked(run.serving.fails())
        dies_now(run, only)
        with pytest.raises(Halted, match="no sampler is left: all 1 were lost"):
            failing.result(timeout=60)


def test_nobody_waits_for_a_load_to_hear_why_one_cannot_come_back() -> None:
    with Run(first := Actor(), Actor(), spare=(Actor(other),)) as run:
        run.serve(1)
        failing = run.serving.asked(run.serving.fails())
        dies_now(run, first)
        with pytest.raises(Halted, match="did not arrive"):
            failing.result(timeout=60)


def test_single_prompts_wait_for_the_sampler_that_comes_back() -> None:
    with Run(only := Actor(), spare=(Actor(),)) as run:
        run.serve(1)
        run.lets_start(False)
        dies_now(run, only)
        asked = run.serving.asked(run.serving.sample(prompts(1)))
        run.lets_start(True)
        assert asked.result(timeout=60) == ["r0"]
        assert run.serving.counts()["samplers/back"] == 1
