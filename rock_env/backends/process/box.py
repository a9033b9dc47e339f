"""One process box, and a copy's need that it stands still."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from rock_env.errors import InfraError, NotFound
from rock_env.guest_host.box import GuestBox

__all__ = ["ProcessBox", "standing_still"]


class ProcessBox(GuestBox):
    """One process box. It knows whether it was paused, so that a snapshot leaves it as it was."""

    paused = False

    async def pause(self) -> None:
        await super().pause()
        self.paused = True

    async def resume(self) -> None:
        await super().resume()
        self.paused = False


@contextlib.asynccontextmanager
async def standing_still(box: ProcessBox) -> AsyncIterator[None]:
    """Pause a box within the block; one that was paused already stays so."""
    if box.paused:
        yield
        return
    await box.pause()
    try:
        yield
    finally:
        with contextlib.suppress(InfraError, NotFound):  # a box that was lost meanwhile
            await box.resume()
