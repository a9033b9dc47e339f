"""What a client shows and to whom: nothing secret in clear text, and no certificate that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

import rock_env
from rock_env.client import Client, Credentials
from rock_env.errors import InvalidArgument

TOKEN = "rock_" + "0" * 12 + "_" + "1" * 64


async def test_a_token_goes_where_no_network_is_in_clear_text() -> None:
    credentials = Credentials(token=TOKEN)
    for address in ("10.0.0.1:1", "grpc://rock.example:1", "0.0.0.0:1"):
        with pytest.raises(InvalidArgument, match="in clear text"):
            credentials.channel(address)
    for address in ("127.0.0.1:1", "unix:///tmp/s", "grpc://localhost:1", "grpcs://rock.example:1"):
        await credentials.channel(address).close()
    assert credentials.metadata() == (("authorization", f"Bearer {TOKEN}"),)
    assert Credentials().metadata() is None


@pytest.mark.parametrize("token", ["rock_é", "a\nb", "a\r\nx: y", "\x00"])
async def test_a_token_that_is_no_header_is_refused_here(token: str) -> None:
    with pytest.raises(InvalidArgument, match="malformed API token"):
        Credentials(token=token).channel("127.0.0.1:1")


async def test_a_certificate_without_tls_is_a_mistake(tmp_path: Path) -> None:
    for address in ("127.0.0.1:1", "grpc://127.0.0.1:1"):
        with pytest.raises(
            InvalidArgument, match=r"ca and key was given. Use grpcs://, or unset ROCK_CA and ROCK_KEY"
        ):
            Credentials(ca="ca.pem", key="k").channel(address)
    await (
        Credentials(ca="ca.pem").channel(f"unix://{tmp_path}/s").close()
    )  # the environment's, not meant for it


def test_a_token_is_never_shown() -> None:
    assert TOKEN not in repr(Credentials(token=TOKEN))


async def test_the_environment_speaks_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "CA", "CERT", "KEY"):
        monkeypatch.setenv(f"ROCK_{name}", f"rock-{name}")
    assert Credentials.from_environment() == Credentials("rock-TOKEN", "rock-CA", "rock-CERT", "rock-KEY")
    client = Client("grpcs://127.0.0.1:1")
    with pytest.raises(InvalidArgument, match="cannot read the certificate 'rock-CERT'"):
        await client.__aenter__()


def test_what_connect_is_given_beats_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCK_CA", "elsewhere.pem")
    with pytest.raises(InvalidArgument, match=r"here\.pem"):
        rock_env.connect("grpcs://127.0.0.1:1", ca=tmp_path / "here.pem")
    with pytest.raises(InvalidArgument, match=r"elsewhere\.pem"):
        rock_env.connect("grpcs://127.0.0.1:1", token=TOKEN)
    with pytest.raises(InvalidArgument, match="needs both files"):
        rock_env.connect("grpcs://127.0.0.1:1", cert=tmp_path / "c.pem")
