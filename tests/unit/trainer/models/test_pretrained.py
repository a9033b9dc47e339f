"""A model of a hub that cannot be reached: one error at once, and what was downloaded before is found."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
import transformers
from huggingface_hub import constants

from rock_env.errors import InvalidArgument
from trainer.models import pretrained

MODEL = "Qwen/Qwen3-0.6B"


class Loader:
    """Stands for a class of Transformers."""

    asked: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def from_pretrained(cls, model: str, **how: Any) -> str:
        cls.asked.append(how)
        if model == "cached/model":
            return "found"
        raise OSError("We could not connect to the hub to load the files.\nMore lines.")


@pytest.fixture(autouse=True)
def loader(monkeypatch: pytest.MonkeyPatch) -> None:
    Loader.asked.clear()
    monkeypatch.setattr(transformers, "AutoNothing", Loader, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    pretrained.why_no_hub.cache_clear()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a hub where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    return address


def test_a_hub_that_cannot_be_reached_is_one_error_at_once(nobody: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        pretrained.read("AutoNothing", MODEL)
    assert Loader.asked == [{"local_files_only": True}], "its own client would try again for minutes"
    said = str(caught.value)
    assert f"the hub {nobody} cannot be reached: [Errno 111] Connection refused" in said
    assert "--model DIR" in said


def test_what_was_downloaded_before_is_found_without_the_hub(nobody: str) -> None:
    assert pretrained.read("AutoNothing", "cached/model") == "found"


def test_a_hub_that_answers_anything_is_asked_by_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(InvalidArgument, match="We could not connect to the hub to load the files"):
            pretrained.read("AutoNothing", MODEL)
    finally:
        server.shutdown()
        server.server_close()
    assert Loader.asked == [{}]
