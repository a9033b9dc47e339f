"""A process tells where its tasks and threads wait and for whom, also where one of its threads hangs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import numpy as np

from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.types import SamplingParams
from trainer.live.door import Door, ask_actor, name_of_actor
from trainer.live.inside import At, reader
from trainer.live.status import Flights, ProcessStatus, Status, lines, logs
from trainer.rollout.sampler import BatchingSampler


async def never(requests: object) -> list[Completion]:
    await asyncio.Event().wait()
    return []


def request(rollout: str) -> SampleRequest:
    return SampleRequest(rollout, 0, np.array([1, 2]), SamplingParams(max_tokens=4), 0)


def test_tasks_that_wait_for_the_same_are_told_as_one_with_their_rollouts() -> None:
    async def played() -> At:
        sampler = BatchingSampler(never, lockstep=True)
        tasks: list[asyncio.Task[Completion]] = []
        for number in range(3):
            sampler.join()
            waiting = sampler.sample(request(f"step-1-g{number}"))
            tasks.append(asyncio.create_task(waiting, name=f"step-1-g{number}"))
        idle = asyncio.create_task(asyncio.sleep(60))  # nobody's work
        await asyncio.sleep(0)
        name = uuid4().hex
        with Door(name_of_actor(name), reader()):
            at = await asyncio.to_thread(ask_actor, name)
        for task in (*tasks, idle):
            task.cancel()
        await asyncio.gather(*tasks, idle, return_exceptions=True)
        assert isinstance(at, At), at
        return at

    at = asyncio.run(played())
    assert at.pid == os.getpid()
    rollouts = next(wait for wait in at.waits if wait.names)
    assert rollouts.count == 3
    assert {*rollouts.names} == {"step-1-g0", "step-1-g1", "step-1-g2"}
    assert rollouts.what == "its batch: the other rollouts of it, or the sampler's answer"
    assert "trainer.rollout.sampler.BatchingSampler.sample" in rollouts.stack[-1]
    assert not any("sleep" in wait.place for wait in at.waits)
    told = list(lines(Status(1, "host", 0, 1, [], 0, [], {}, [ProcessStatus("worker 1", at)])))
    assert any("3 waiting for its batch" in line and "such as step-1-g" in line for line in told)


def test_a_thread_that_hangs_is_told_with_its_place_and_on_demand_its_stack() -> None:
    hangs, ends = threading.Event(), threading.Event()

    def clock() -> float:
        hangs.set()
        ends.wait(30)
        return 0.0

    thread = threading.Thread(target=Flights(clock).longest, name="stuck")
    thread.start()
    hangs.wait(30)
    name = uuid4().hex
    with Door(name_of_actor(name), reader()):
        at, whole = ask_actor(name), ask_actor(name, whole=True)
    ends.set()
    thread.join()
    assert isinstance(at, At)
    assert isinstance(whole, At)
    assert at.stacks == {}
    assert any(each.startswith("stuck ") and "in clock" in stack for each, stack in whole.stacks.items())


def test_who_does_not_answer_is_said_with_the_reason() -> None:
    said = ask_actor(uuid4().hex)
    assert said == "it has ended, or is on another machine"
    told = list(lines(Status(1, "host", 0, 1, [], 0, [], {}, [ProcessStatus("sampler 2", None, said)])))
    assert told[-1] == f"sampler 2: {said}"


def test_the_last_lines_of_a_log_are_those_of_people(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w+") as file:
        file.write(":job_id:01\nfirst\n:actor_name:Learner\n" + "x" * 1000 + "\n\nlast\n")
        file.flush()
        code = "from trainer.live.inside import logged; print('\\n'.join(logged()))"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=file, check=True)
    assert done.stdout.decode().splitlines() == ["first", "x" * 300, "last"]


def test_logs_stay_with_who_sits_at_the_run() -> None:
    at = At(7, [], {"MainThread": "trainer.loop.train (line 1)"}, ["a token: 123"])
    status = Status(1, "host", 0, 1, [], 0, [], {}, [ProcessStatus("worker 1", at)])
    assert "    a token: 123" in lines(status)
    assert not any("123" in line for line in lines(status, logs=False))
    assert list(logs(status)) == ["worker 1 (process 7) wrote last", "    a token: 123"]
