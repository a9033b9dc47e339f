"""Contexts: a name in place of an address, with where its token and CA are; nothing secret in their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ale.rock.cli import rock_app
from ale.rock.reach import server_in_use
from rock_env.client import Client, Credentials, installations
from rock_env.client.admin import AdminClient
from rock_env.client.installations import Installation, resolved
from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName

TOKEN = "rock_" + "0" * 12 + "_" + "1" * 64


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep contexts in a folder of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ROCK_TOKEN", "ROCK_CA", "ROCK_CERT", "ROCK_KEY", "ROCK_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "rock" / "contexts.json"


@pytest.fixture
def prod(tmp_path: Path) -> Installation:
    """Add the context `prod`."""
    for name, text in (
        ("token", f"{TOKEN}\n"),
        ("ca.pem", "a CA"),
        ("cert.pem", "a certificate"),
        ("key.pem", "a key"),
    ):
        (tmp_path / name).write_text(text)
    paths = {
        "token_file": tmp_path / "token",
        "ca": tmp_path / "ca.pem",
        "cert": tmp_path / "cert.pem",
        "key": tmp_path / "key.pem",
    }
    made = Installation("grpcs://rock.example:8120", **{name: str(path) for name, path in paths.items()})
    assert not installations.add("prod", made)
    return made


def context(*words: str) -> Result:
    return CliRunner().invoke(rock_app, ["context", *words])


def test_a_context_is_its_address_its_token_and_its_files(
    prod: Installation, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCK_TOKEN", "rock_of_another_server")
    assert resolved("prod") == (prod.address, Credentials(TOKEN, prod.ca, prod.cert, prod.key))
    assert resolved("127.0.0.1:1") == ("127.0.0.1:1", Credentials("rock_of_another_server"))
    own = Credentials("rock_own", "own-ca.pem")
    assert resolved("prod", own) == (prod.address, Credentials("rock_own", "own-ca.pem", prod.cert, prod.key))
    assert resolved("127.0.0.1:1", Credentials()) == ("127.0.0.1:1", Credentials())
    assert TOKEN not in file.read_text()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    Path(prod.token_file).write_text("rock_rotated")
    assert resolved("prod")[1].token == "rock_rotated"


def test_what_a_context_does_not_say_the_environment_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCK_TOKEN", TOKEN)
    installations.add("bare", Installation("grpcs://rock.example:8120"))
    assert resolved("bare")[1] == Credentials(TOKEN)


@pytest.mark.parametrize("make", [Client, AdminClient])
def test_clients_take_names_and_refuse_what_is_neither(make: type[Client], prod: Installation) -> None:
    make("prod")
    with pytest.raises(UnknownName, match=r"unknown context 'prot'.*mean 'prod'"):
        make("prot")
    for bad in ("Prod", "a/b", "", "grpc://x", "host:port", "../x", "a b"):
        with pytest.raises(InvalidArgument, match="bad ROCK address"):
            make(bad)


def test_without_contexts_the_error_says_how_to_add_one() -> None:
    with pytest.raises(
        UnknownName, match=r"'prod' is neither an address nor a context.*ale rock context add prod ADDRESS"
    ):
        Client("prod")


@pytest.mark.parametrize(
    ("name", "made", "said"),
    [
        ("Prod", Installation("a:1"), "bad context 'Prod'"),
        ("", Installation("a:1"), "bad context ''"),
        ("a:1", Installation("a:1"), "bad context 'a:1'"),
        ("x" * 64, Installation("a:1"), "bad context"),
        ("a", Installation("b"), "bad ROCK address 'b'"),
        ("a", Installation("a:1", ca="/etc/hostname"), "address without TLS"),
        (
            "a",
            Installation("grpcs://a:1", ca="/nothing.pem"),
            r"the ca of context 'a' cannot be read: /nothing\.pem",
        ),
        (
            "a",
            Installation("grpcs://a:1", token_file="/nothing"),
            r"the token of context 'a' cannot be read: /nothing",
        ),
        ("a", Installation("grpcs://a:1", token_file="/dev/null"), "expected a regular file"),
        ("a", Installation("grpcs://a:1", token_file="/dev/zero"), "expected a regular file"),
    ],
)
def test_what_cannot_work_is_not_added(name: str, made: Installation, said: str, file: Path) -> None:
    with pytest.raises((InvalidArgument, FailedPrecondition), match=said):
        installations.add(name, made)
    assert not file.exists()


def test_a_token_does_not_go_in_clear_text_by_way_of_a_context(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with pytest.raises(InvalidArgument, match="in clear text"):
        installations.add("plain", Installation("10.0.0.1:1", token_file=str(tmp_path / "token")))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 1, "contexts": {"a": {}}}', b'{"version": 2, "contexts": {}}', b"\xff"],
)
def test_a_damaged_file_is_named_and_never_replaced(content: bytes, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    for act in (
        lambda: Client("prod"),
        lambda: installations.use(""),
        lambda: installations.add("a", Installation("a:1")),
    ):
        with pytest.raises(FailedPrecondition, match=str(file)):
            act()
    assert file.read_bytes() == content
    Client("127.0.0.1:1")  # which needs no contexts


def test_a_file_that_others_may_write_is_not_trusted(prod: Installation, file: Path) -> None:
    file.chmod(0o620)
    with pytest.raises(FailedPrecondition, match=r"others may write.*mode 620.*chmod 600"):
        Client("prod")


def test_the_commands_add_use_and_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text(TOKEN)
    added = context("add", "prod", "grpcs://rock.example:8120", "--token-file", "token")
    assert (added.exit_code, added.stderr) == (0, "context prod added. Try it: ale rock status prod\n")
    assert "changed" in context("add", "prod", "grpcs://rock.example:8121", "--token-file", "token").stderr
    assert context("add", "other", "127.0.0.1:8120").exit_code == 0
    assert server_in_use("") == "127.0.0.1:8120"
    assert "go to prod now" in context("use", "prod").stderr
    assert (server_in_use(""), server_in_use("other")) == ("prod", "other")
    told = json.loads(context("list", "--json").stdout)
    assert told["in_use"] == "prod"
    assert list(told["contexts"]) == ["other", "prod"]
    assert told["contexts"]["prod"]["address"] == "grpcs://rock.example:8121"
    assert told["contexts"]["prod"]["token_file"] == str(tmp_path / "token"), "found from every folder"
    table = context("list").stdout
    assert "prod *" in table
    assert TOKEN not in table
    assert isinstance(context("use", "prot").exception, UnknownName)
    assert server_in_use("") == "prod", "an unknown name changes nothing"
    assert "127.0.0.1:8120 now" in context("use").stderr
    assert server_in_use("") == "127.0.0.1:8120"
