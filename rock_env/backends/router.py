"""Which backend hosts which sandbox: by its spec when it is made, by the name in its record ever after.

Built by `server/app.py`, asked by the sandbox core. It holds no boxes and never opens an engine: a backend whose
engine is missing says so itself when it is asked for a box.
"""

from __future__ import annotations

from collections.abc import Iterator

from rock_env.backends.base import Backend, sites_of
from rock_env.errors import FailedPrecondition, Unimplemented
from rock_env.spec import SandboxSpec

__all__ = ["BackendRouter"]


class BackendRouter:
    """The backends of one server, by name. A server with a single backend asks that one for everything; of several the
    first that hosts the spec gets it.
    """

    def __init__(self, *backends: Backend) -> None:
        self._backends = {backend.name: backend for backend in backends}
        if not backends or len(self._backends) != len(backends):
            raise ValueError(f"expected at least one backend and each once, got {[b.name for b in backends]}")

    @classmethod
    def of(cls, backend: Backend | BackendRouter) -> BackendRouter:
        """Return a router as it is, or one that knows only this backend."""
        return backend if isinstance(backend, BackendRouter) else cls(backend)

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    @property
    def sites(self) -> frozenset[str]:
        """Return where the boxes of those backends are that keep nothing on this host, as records name it."""
        return frozenset().union(*map(sites_of, self))

    def hosting(self, spec: SandboxSpec) -> Backend:
        """Return the backend for a new sandbox. Raise `Unimplemented` if this server has none for its spec."""
        if len(self._backends) == 1:
            return next(iter(self))  # what it cannot honour it refuses itself
        for backend in self:
            if backend.hosts(spec):
                return backend
        raise Unimplemented(
            f"no backend of this server hosts a sandbox "
            f"{f'of the image {spec.image!r}' if spec.image else 'without an image'}: it has only "
            f"{', '.join(sorted(self._backends))}. Use a server that has another (ale rock serve --backend NAME)."
        )

    def named(self, name: str) -> Backend:
        """Return the backend of a record. Raise `FailedPrecondition` if this server runs without it."""
        backend = self._backends.get(name)
        if backend is None:
            raise FailedPrecondition(
                f"this server runs without the backend {name!r}; it has: {', '.join(sorted(self._backends))}. "
                "Start it with the backends it had before."
            )
        return backend

    async def let_go(self) -> None:
        """Let every backend go of its boxes, the durable ones live on."""
        for backend in self:
            await backend.let_go()

    async def close(self) -> None:
        """Close every backend."""
        for backend in self:
            await backend.close()
