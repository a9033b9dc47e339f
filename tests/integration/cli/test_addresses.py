"""Every command that asks a ROCK server, where none answers: nobody listens, or what listens is no ROCK server."""

import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import pytest

from ale.cli import app, explained

COMMANDS = (
    *("ps", "create", "rm x", "exec x -- true", "logs x", "cp x:a .", "gc", "drain", "status"),
    *(
        "image list",
        "image show x",
        "image delete x",
        "image validate x",
        "image gc",
        "image register . --name x",
    ),
    *("quota list", "quota set x --boxes 1", "pool list", "pool set 1"),
)
SOME = ("ps", "image list", "quota list", "drain")
"""One of each kind of connection."""
FORMS = (
    "unix:{path}",
    "unix://{path}",
    "{host}",
    "grpc://{host}",
    "grpcs://{host}",
    "http://{host}",
    "https://{host}",
)
HTML = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"
SAYS = {"silent": None, "garbage": bytes(range(256)), "web": HTML, "closed": b""}
"""What a peer answers to the first bytes; None never answers."""
NONSENSE = (
    "http://",
    "http://[::1",
    "https://a b:80",
    "ftp://127.0.0.1:1",
    "unix:",
    "127.0.0.1:99999",
    "http://\u200b:1",
)
UNREACHABLE, LATE, WRONG = 69, 75, 2


def peer(said: bytes | None, over: threading.Event) -> type[socketserver.BaseRequestHandler]:
    class Peer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)
            if said is None:
                over.wait()
            else:
                self.request.sendall(said)

    return Peer


@pytest.fixture(scope="module")
def ended() -> Iterator[Callable[[str, str], list[str]]]:
    """Yield what tells how each command ended at the addresses of a peer in a form; all of them run at once."""
    over = threading.Event()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "context").mkdir()
        (folder / "context" / "Dockerfile").write_text("FROM scratch\n")
        places = {"absent": ("127.0.0.1:1", folder / "absent")}
        for name, said in SAYS.items():
            for kind, place in (
                (socketserver.ThreadingTCPServer, ("127.0.0.1", 0)),
                (socketserver.ThreadingUnixStreamServer, str(folder / name)),
            ):
                kind.daemon_threads, kind.request_queue_size = True, 128
                server = stack.enter_context(kind(place, peer(said, over)))  # type: ignore[arg-type]
                threading.Thread(target=server.serve_forever, daemon=True).start()
                stack.callback(server.shutdown)
                if kind is socketserver.ThreadingTCPServer:
                    places[name] = (f"127.0.0.1:{server.server_address[1]}", folder / name)
        stack.callback(over.set)
        addresses = {
            (name, form): form.format(host=host, path=path)
            for name, (host, path) in places.items()
            for form in FORMS
        }
        addresses |= {("nonsense", address): address for address in NONSENSE}
        running: dict[str, dict[str, list[Future[str]]]] = {}

        def told(name: str, form: str) -> list[str]:
            if name not in running:
                words = COMMANDS if name == "absent" else SOME if name != "silent" else SOME[:1]
                running[name] = {
                    each: [start(command, address, folder) for command in words]
                    for (of, each), address in addresses.items()
                    if of == name
                }
            return [each.result(timeout=240) for each in running[name][form]]

        yield told


def start(command: str, address: str, folder: Path) -> "Future[str]":
    words = [str(folder / "context") if word == "." else word for word in command.split()]
    at = [address] if command in ("drain", "status") else ["--rock", address]
    done: Future[str] = Future()

    def run() -> None:
        try:
            app(
                ["rock", words[0], *at, *words[1:]] if words[0] == "exec" else ["rock", *words, *at],
                standalone_mode=False,
            )
            done.set_result(f"{command}: 0 it succeeded")
        except Exception as error:  # noqa: BLE001  as `main` does
            said, code = explained(error)
            done.set_result(f"{command}: {code} {said}")

    threading.Thread(target=run, daemon=True).start()
    return done


CASES = [(name, form) for name in ("absent", *SAYS) for form in FORMS]
CASES += [("nonsense", address) for address in NONSENSE]


@pytest.mark.parametrize(("name", "form"), CASES, ids=lambda value: repr(value))
def test_a_command_says_in_one_line_that_no_server_answers(
    ended: Callable[[str, str], list[str]], name: str, form: str
) -> None:
    codes = (WRONG,) if name == "nonsense" else (UNREACHABLE, LATE) if name == "silent" else (UNREACHABLE,)
    others = [
        said for said in ended(name, form) if int(said.split(": ")[1].split()[0]) not in codes or "\n" in said
    ]
    assert not others
