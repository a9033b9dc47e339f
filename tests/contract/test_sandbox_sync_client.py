"""The synchronous face of sandboxes: what the async client does, each call waited for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from test_sandbox_client import server  # noqa: F401  a fixture

import rock_env
from rock_env.client.sandbox.sync import FACES
from rock_env.client.sync import Connection
from rock_env.errors import NotFound
from rock_env.local import EmbeddedServer

pytestmark = pytest.mark.any_address


@pytest.fixture(scope="module")
def rock(server: EmbeddedServer) -> Iterator[Connection]:  # noqa: F811
    with rock_env.connect(server.address) as connection:
        yield connection


def test_the_synchronous_face_does_the_same(rock: Connection) -> None:
    with rock.sandboxes.create(labels={"test": "sync"}) as box:
        assert box.exec(["echo", "hi"]).stdout == b"hi\n"
        with box.start(["sh", "-c", "echo one; echo two"]) as command:
            assert b"".join(chunk.data for chunk in command.output()) == b"one\ntwo\n"
            assert command.wait().ok
        box.files.write("file", b"content")
        assert b"".join(box.files.stream("file")) == b"content"
        for info in rock.sandboxes.watch(labels={"test": "sync"}):
            assert info.id == box.id
            break
        with pytest.raises(NotFound):
            box.files.read("nothing")
    assert rock.sandboxes.list(labels={"test": "sync"}) == []


def test_what_outlives_its_connection_says_so(server: EmbeddedServer) -> None:  # noqa: F811
    with rock_env.connect(server.address) as connection, connection.sandboxes.create() as box:
        command = box.start(["echo", "hi"])
        with command:
            output = command.output()
            assert next(output).data == b"hi\n"
    output.close()
    with pytest.raises(RuntimeError, match="connection was closed"):
        box.exec(["true"])


@pytest.mark.parametrize("kind", FACES, ids=lambda kind: kind.__name__)
def test_the_synchronous_face_has_every_method(kind: type) -> None:
    for name, real in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            made = getattr(FACES[kind], name)
            assert not inspect.iscoroutinefunction(made)
            assert inspect.signature(made) == inspect.signature(real)
            assert made.__doc__ == real.__doc__
