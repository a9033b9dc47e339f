"""Docker on this machine, as the command line needs it: whether an engine answers, and what to do where none does."""

from __future__ import annotations

from rock_env.backends.docker.engine import Engine
from rock_env.errors import InvalidArgument, RockError, Unavailable

__all__ = ["INSTALL", "engine_version"]

INSTALL = (
    "Install Docker (Debian, Ubuntu: `apt-get install docker.io`; others: docs.docker.com/engine/install), start it "
    "(`systemctl start docker`), and let this user use it (group `docker`)."
)


async def engine_version() -> str:
    """Return the version of the engine of this machine. Raise `Unavailable` with `INSTALL`, or `InvalidArgument`."""
    engine = Engine()
    try:
        return str((await engine.call("GET", "/version"))["Version"])
    except InvalidArgument:  # of DOCKER_HOST, which says what to do
        raise
    except RockError as error:
        what = error.message.partition(". Start it")[0]  # what else it advises is for who needs no images
        raise Unavailable(f"{what}. {INSTALL}") from error
    finally:
        await engine.close()
