"""Log lines: each with the ids of its call, in text or JSON, and never a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from rock_env.security.auth import acting_for, new_token
from rock_env.security.sandbox_tokens import new_sandbox_token, port_label
from rock_env.telemetry.logs import LogFormat, add_log_ids, enter_call, set_up_logs, without_secrets

log = logging.getLogger("rock_env.test_logs")


@pytest.fixture(autouse=True)
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # not to be closed by `force`
    yield
    root.handlers = handlers
    root.setLevel(level)


async def line(capsys: pytest.CaptureFixture[str], log_format: LogFormat, message: str, *args: object) -> str:
    set_up_logs("INFO", log_format)
    enter_call("SandboxService/Create", "ab12", 255)
    add_log_ids(sandbox_id="sb-1", env_id="")
    with acting_for("blue"):
        log.info(message, *args)
    return capsys.readouterr().err


async def test_json_lines_have_the_ids_of_their_call(capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(await line(capsys, "json", "made in %d ms", 3))
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "INFO",
        "logger": "rock_env.test_logs",
        "message": "made in 3 ms",
        "rpc": "SandboxService/Create",
        "request_id": "ab12-ff",
        "sandbox_id": "sb-1",
        "tenant": "blue",
    }


async def test_text_lines_end_with_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    said = await line(capsys, "text", "made")
    ids = "sandbox_id=sb-1 rpc=SandboxService/Create request_id=ab12-ff tenant=blue"
    assert said.endswith(f" INFO rock_env.test_logs made {ids}\n")


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_a_token_never_appears(capsys: pytest.CaptureFixture[str], log_format: LogFormat) -> None:
    token, text = new_token("blue", ["env"], now=0.0)
    secret = text.rpartition("_")[2]
    said = await line(capsys, log_format, "called with %s and %r", text, {"authorization": f"Bearer {text}"})
    assert secret not in said
    assert said.count(f"rock_{token.id}_***") == 2
    try:
        raise ValueError(f"bad {text}")
    except ValueError:
        log.exception("refused")
    said = capsys.readouterr().err
    assert "ValueError" in said
    assert secret not in said


def test_what_opens_one_sandbox_or_one_port_of_it_is_cut_out_too() -> None:
    _, token = new_sandbox_token("sb-0123456789abcdef", port=8000)
    label = port_label(token, 8000)
    for text in (f"Bearer {token}", f"token={token}", f"GET /ports/{label}/index.html", f"{label}.localhost"):
        said = without_secrets(text)
        assert token.rpartition("_")[2] not in said
        assert "0123456789abcdef" in said, "which one it is of is no secret"
    assert without_secrets(f"/ports/{label}/a").endswith("-***/a")


def test_other_bearer_secrets_are_cut_out_too() -> None:
    assert without_secrets("Authorization: bearer abc.def-1 x") == "Authorization: bearer *** x"
    assert without_secrets("nothing rock_env to see") == "nothing rock_env to see"
