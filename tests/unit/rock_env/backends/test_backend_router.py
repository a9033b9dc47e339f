"""Which backend gets which sandbox."""

from __future__ import annotations

import pytest
from memory_backend import MemoryBackend, Node

from rock_env.backends.router import BackendRouter
from rock_env.errors import FailedPrecondition, Unimplemented
from rock_env.spec import SandboxSpec

PROCESS, DOCKER = MemoryBackend(Node(), "process"), MemoryBackend(Node(), "docker")


def test_an_image_goes_to_docker_and_everything_else_to_processes() -> None:
    router = BackendRouter(PROCESS, DOCKER)
    assert router.hosting(SandboxSpec()) is PROCESS
    assert router.hosting(SandboxSpec(image="debian")) is DOCKER
    assert [backend.name for backend in router] == ["process", "docker"]
    assert BackendRouter.of(router) is router


def test_the_first_that_hosts_a_spec_gets_it() -> None:
    other = MemoryBackend(Node(), "other")
    assert BackendRouter(other, PROCESS, DOCKER).hosting(SandboxSpec()) is other
    assert BackendRouter(PROCESS, other, DOCKER).hosting(SandboxSpec()) is PROCESS


def test_a_single_backend_gets_everything_and_refuses_for_itself() -> None:
    assert BackendRouter.of(DOCKER).hosting(SandboxSpec()) is DOCKER
    assert BackendRouter.of(PROCESS).hosting(SandboxSpec(image="debian")) is PROCESS


def test_a_backend_that_is_not_there_is_named() -> None:
    router = BackendRouter(PROCESS, MemoryBackend(Node(), "other"))
    with pytest.raises(Unimplemented, match=r"hosts a sandbox of the image .debian.: .* other, process"):
        router.hosting(SandboxSpec(image="debian"))
    with pytest.raises(FailedPrecondition, match="without the backend 'docker'; it has: other, process"):
        router.named("docker")
    with pytest.raises(ValueError, match="each once"):
        BackendRouter(PROCESS, MemoryBackend(Node(), "process"))
