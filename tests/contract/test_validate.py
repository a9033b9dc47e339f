"""The conformance gate of an image, on real process boxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fences import why_not_isolated

from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import InfraError
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.sandboxes.validate import (
    CHECKS,
    CheckedBoxes,
    CheckResult,
    CheckVerdict,
    Probe,
    need,
    validate,
)
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite.records import SqliteStore


def machine_routes() -> list[str]:
    return Path("/proc/net/route").read_text().splitlines()[1:]


@pytest.fixture
def fence() -> None:
    if why_not_isolated():
        pytest.skip(f"no isolation here: {why_not_isolated()}")


@pytest.fixture
async def backend(fence: None, tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation="namespaces")
    yield made
    await made.close()


async def report(backend: ProcessBackend, **options: object) -> dict[str, CheckResult]:
    async with await SqliteStore.open() as store, SandboxCore(backend, store) as core:
        boxes = CheckedBoxes(core, SandboxSpec())
        outcomes = [outcome async for outcome in validate(boxes, SandboxSpec(), **options)]  # type: ignore[arg-type]
        assert core.ledger.held == {}, "nothing is left of the sandboxes that were looked at"
        assert not await backend.census()
        assert not await backend.snapshots()
    return {outcome.name: outcome for outcome in outcomes}


async def test_a_sound_box_passes_every_check_with_evidence(backend: ProcessBackend) -> None:
    found = await report(backend)
    assert list(found) == ["box starts", *(name for name, _ in CHECKS)]
    failed = {name: outcome for name, outcome in found.items() if outcome.verdict is CheckVerdict.FAIL}
    assert failed == {}
    assert all(outcome.evidence for outcome in found.values())
    assert found["exit codes"].evidence == "exit 3, signal 9, timed out True, not found 127"
    assert found["network off"].evidence == "routes by: none"


async def test_a_check_of_a_later_gate_runs_beside_these_and_its_failure_is_its_own(
    backend: ProcessBackend,
) -> None:
    async def unsound(probe: Probe) -> str:
        return need((await probe.sh("exit 5")).ok, "the oracle scored 0")

    async def broken(_: Probe) -> str:
        raise ZeroDivisionError

    async def fine(probe: Probe) -> str:
        return need((await probe.sh("exit 0")).ok, "still here")

    found = await report(backend, checks=[("oracle", unsound), ("seeds", broken), ("last", fine)])
    assert (found["oracle"].verdict, found["oracle"].evidence) == (CheckVerdict.FAIL, "the oracle scored 0")
    assert found["seeds"].verdict is CheckVerdict.FAIL
    assert found["last"].verdict is CheckVerdict.PASS


async def test_a_box_that_does_not_start_is_reported_alone(tmp_path: Path) -> None:
    class Broken(ProcessBackend):
        async def create(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise InfraError("no shell in the image")

    broken = Broken(root=tmp_path, isolation="none")
    found = await report(broken)
    await broken.close()
    assert [(outcome.name, outcome.verdict) for outcome in found.values()] == [
        ("box starts", CheckVerdict.FAIL)
    ]
    assert found["box starts"].evidence == "no shell in the image"


async def test_a_box_with_a_network_fails(tmp_path: Path) -> None:
    """Without isolation a box sees the machine's network: just what the gate is for."""
    made = ProcessBackend(root=tmp_path, isolation="none")
    found = await report(made, checks=[check for check in CHECKS if check[0] == "network off"])
    await made.close()
    assert found["network off"].verdict is (CheckVerdict.FAIL if machine_routes() else CheckVerdict.PASS)
