"""Which doors a server opens: none by accident."""

from __future__ import annotations

from typing import Any

import pytest

from rock_env.errors import InvalidArgument
from rock_env.server.options import ServerOptions, parse

TLS = {"cert": "c.pem", "key": "k.pem"}
LOOPBACK = ["127.0.0.1:0", "127.9.9.9:1", "localhost:1", "[::1]:1", "grpc://127.0.0.1:1"]
NETWORK = [
    "0.0.0.0:1",
    "[::]:1",
    "10.0.0.1:1",
    "rock.example:1",
    "localhost.example:1",
    "grpc://192.168.0.1:1",
]
UNIX = ["unix:///tmp/s", "unix:s"]


@pytest.mark.parametrize("listen", LOOPBACK + NETWORK)
def test_a_port_without_tokens_is_refused(listen: str) -> None:
    for more in ({}, TLS, {**TLS, "client_ca": "ca.pem"}):
        with pytest.raises(InvalidArgument, match="without tokens"):
            ServerOptions(listen=listen, **more).check()


@pytest.mark.parametrize("listen", NETWORK)
def test_beyond_loopback_there_is_no_way_around_tls(listen: str) -> None:
    with pytest.raises(InvalidArgument, match="in clear text"):
        ServerOptions(listen=listen, tokens="t").check()
    with pytest.raises(InvalidArgument, match="--insecure is for loopback"):
        ServerOptions(listen=listen, insecure=True).check()
    ServerOptions(listen=listen, tokens="t", **TLS).check()


@pytest.mark.parametrize("listen", LOOPBACK)
def test_on_loopback_tokens_may_go_without_tls_and_insecure_must_be_said(listen: str) -> None:
    ServerOptions(listen=listen, tokens="t").check()
    ServerOptions(listen=listen, insecure=True).check()
    ServerOptions(listen=listen, tokens="t", **TLS, client_ca="ca.pem").check()


@pytest.mark.parametrize("listen", UNIX)
def test_a_unix_socket_is_guarded_by_its_file(listen: str) -> None:
    ServerOptions(listen=listen).check()
    ServerOptions(listen=listen, tokens="t").check()
    for more in ({"insecure": True}, TLS):
        with pytest.raises(InvalidArgument, match="a unix socket takes neither"):
            ServerOptions(listen=listen, **more).check()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cert": "c"}, "both --cert and --key"),
        ({"store": "postgresql://h/d"}, "give --state DIR, .* or --peers HOST:PORT"),
        ({"peers": "10.0.0.5:1"}, "give --store postgresql"),
        *(
            ({"store": "postgresql://h/d", "peers": wrong}, "is told to other servers: got")
            for wrong in ("0.0.0.0:1", "[::]:1", "unix:///s", "10.0.0.5:0", "grpc://10.0.0.5:1")
        ),
        ({"key": "k"}, "both --cert and --key"),
        ({"client_ca": "c"}, "give --cert and --key too"),
        ({"insecure": True, "tokens": "t"}, "--insecure means no tokens"),
        ({"insecure": True, **TLS}, "--insecure means no tokens"),
        ({"listen": "grpcs://127.0.0.1:1", "tokens": "t"}, "asks for TLS"),
        ({"listen": "nonsense"}, "bad ROCK address"),
        *(
            ({"listen": "unix:s", "packages": where}, "--packages expects")
            for where in (
                "8125",
                "0.0.0.0:8125",
                "host.example:8125",
                "[::1]:8125",
                "10.0.0.1:99999",
                "10.0.0.1:",
            )
        ),
        (
            {"listen": "unix:s", "packages": "10.0.0.1:1", "packages_npm": "file:///x"},
            "--packages-npm expects",
        ),
        *(
            ({"listen": "unix:s", "packages": "10.0.0.1:1", "packages_pypi": url}, "without a user")
            for url in (
                "https://me:secret@pypi.example/simple",
                "https:///simple",
                "https://h,http://h:99999",
            )
        ),
        ({"listen": "unix:s", "packages": "10.0.0.1:1", "packages_gib": 0.0}, "--packages-gib must"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        ServerOptions(**options).check()


@pytest.mark.parametrize("peers", ["10.0.0.5:8123", "[fd00::5]:8123", "rock-0.rock:8123"])
def test_with_peers_a_shared_store_needs_no_folder(peers: str) -> None:
    ServerOptions(listen="127.0.0.1:1", insecure=True, store="postgresql://h/d", peers=peers).check()


def test_among_tenants_an_unfenced_sandbox_is_no_fallback() -> None:
    assert ServerOptions(insecure=True).sandbox_isolation == "auto"
    assert ServerOptions(tokens="t").sandbox_isolation == "namespaces"
    assert ServerOptions(tokens="t", isolation="none").sandbox_isolation == "none"


def test_the_command_line_has_the_same_defaults() -> None:
    assert parse([]) == (ServerOptions(env=[], data=[], backend=[]), "WARNING")
    assert parse(["--env=a:B", "--drain-s=3"]) == (
        ServerOptions(env=["a:B"], data=[], backend=[], drain_s=3.0),
        "WARNING",
    )
