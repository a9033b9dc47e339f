"""`ale rock`: a server in the foreground, a look at it, and its tokens; one clear line where something is wrong."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import ale, refused
from secure_servers import TOYS, make_certificates, serving

from rock_env.client import Client, Credentials
from rock_env.errors import RockError

SERVE = ["ale", "rock", "serve", "--listen", "127.0.0.1:0", "--workers", "1", "--isolation", "none"]


def create(cwd: Path, tenant: str, *words: str) -> str:
    done = ale("rock", "token", "create", "--tokens", "t.json", "--tenant", tenant, *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_life_of_a_token(tmp_path: Path) -> None:
    kept = create(tmp_path, "blue", "--scope", "env", "--scope", "sandbox")
    short = create(tmp_path, "red", "--scope", "admin", "--expires-in", "30d")
    assert stat.S_IMODE((tmp_path / "t.json").stat().st_mode) == 0o600
    listed = ale("rock", "token", "list", "--tokens", "t.json", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    heads, first, second = listed.stdout.splitlines()
    assert heads.split() == ["id", "tenant", "scopes", "created", "expires"]
    assert first.split()[:3] == [kept.split("_")[1], "blue", "env,sandbox"]
    assert first.split()[-1] == "never"
    assert second.split()[:3] == [short.split("_")[1], "red", "admin"]
    assert kept.split("_")[2] not in listed.stdout
    revoked = ale("rock", "token", "revoke", kept.split("_")[1], "--tokens", "t.json", cwd=tmp_path)
    assert revoked.returncode == 0, revoked.stderr
    assert "tenant blue is revoked" in revoked.stderr
    listed = ale("rock", "token", "list", "--tokens", "t.json", cwd=tmp_path)
    assert "blue" not in listed.stdout
    assert "red" in listed.stdout
    again = ale("rock", "token", "revoke", kept.split("_")[1], "--tokens", "t.json", cwd=tmp_path)
    refused(again, 66, "no token", "ale rock token list")


CREATE = ["token", "create", "--tokens", "t.json"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([*CREATE, "--tenant", "Blue", "--scope", "env"], 2, "bad tenant name 'Blue'"),
        ([*CREATE, "--tenant", "b", "--scope", "envs"], 2, "Did you mean 'env'?"),
        ([*CREATE, "--tenant", "b", "--scope", "env", "--expires-in", "soon"], 2, "such as 30d"),
        ([*CREATE, "--tenant", "b", "--scope", "env", "--expires-in", "0s"], 2, "such as 30d"),
        ([*CREATE, "--tenant", "b", "--scope", "env", "--expires-in", "99999d"], 2, "at most 3650d"),
        (["token", "list", "--tokens", "nothing"], 66, "no token file nothing"),
        (["token", "list", "--tokens", "broken"], 65, "is not a token file"),
        (["token", "list", "--tokens", "open"], 65, "chmod 600 open"),
        (["serve"], 2, "without tokens"),
        (["serve", "--listen", "0.0.0.0:0", "--insecure"], 2, "--insecure is for loopback"),
        (["serve", "--tokens", "nothing"], 66, "ale rock token create"),
        (["serve", "--tokens", "broken"], 65, "is not a token file"),
        (["serve", "--insecure", "--listen", "nonsense"], 2, "bad ROCK address"),
        (["serve", "--tokens", "good", "--cert", "broken", "--key", "broken"], 2, "certificate 'broken'"),
        (["serve", "--tokens", "good", "--cert", "broken"], 2, "both --cert and --key"),
        (["serve", "--listen", "unix:///nowhere/at/all"], 69, "cannot listen"),
        (
            ["serve", "--insecure", "--store", "/nowhere/x.db"],
            2,
            "Name a file in a folder that can be written",
        ),
        (["status", "nonsense"], 2, "neither an address nor a context"),
        (["status", "127.0.0.1:1"], 69, "Start one with `ale rock serve`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_in_one_line(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    for name, mode in (("broken", 0o600), ("open", 0o644), ("good", 0o600)):
        (tmp_path / name).write_text('{"version": 1, "tokens": []}' if name == "good" else "{")
        (tmp_path / name).chmod(mode)
    refused(ale("rock", *words, cwd=tmp_path), code, said)
    assert not (tmp_path / "t.json").exists()


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("--listen", "--http", "--metrics"):
            options = {"--listen": "127.0.0.1:0", option: address}
            words = [word for pair in options.items() for word in pair]
            refused(ale("rock", "serve", "--insecure", *words, cwd=tmp_path), 69, address)


def test_status_takes_its_address_from_the_environment(tmp_path: Path) -> None:
    refused(ale("rock", "status", cwd=tmp_path, ROCK_ADDRESS="127.0.0.1:1"), 69, "127.0.0.1:1")


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    (tmp_path / "pki").mkdir()
    return make_certificates(tmp_path / "pki")


def test_status_over_mtls_says_what_the_token_allows(tmp_path: Path, pki: Path) -> None:
    operator, user = create(tmp_path, "op", "--scope", "admin"), create(tmp_path, "blue", "--scope", "env")
    options = ["--tokens", "t.json", "--cert", "pki/server.pem", "--key", "pki/server.key"]
    with serving([*SERVE, *options, "--client-ca", "pki/ca.pem"], tmp_path) as (server, address):
        mine = {"ROCK_CA": "pki/ca.pem", "ROCK_CERT": "pki/client.pem", "ROCK_KEY": "pki/client.key"}
        done = ale("rock", "status", address, cwd=tmp_path, ROCK_TOKEN=operator, **mine)
        assert done.returncode == 0, done.stderr
        assert f"{address} is serving" in done.stdout
        assert "0 in 0 of 1 workers, 0 in sandboxes" in done.stdout
        done = ale("rock", "status", address, cwd=tmp_path, ROCK_TOKEN=user, **mine)
        assert f"{address} is serving" in done.stdout
        refused(done, 77, "holds the scopes env, and this needs admin")
        refused(ale("rock", "status", address, cwd=tmp_path, **mine), 77, "set ROCK_TOKEN")
        stranger = {**mine, "ROCK_CA": "pki/other-ca.pem"}
        done = ale("rock", "status", address, cwd=tmp_path, ROCK_TOKEN=operator, **stranger)
        refused(done, 69, "CERTIFICATE_VERIFY_FAILED")
        # Other commands find token and certificates the same way.
        words = ["rollout", "--env", "frozen_lake", "--episodes", "2", "--rock", address]
        done = ale(*words, cwd=tmp_path, ROCK_TOKEN=user, **mine)
        assert "2 of 2 passed, 0 failed" in done.stdout, done.stderr
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0
    refused(ale("rock", "status", address, cwd=tmp_path, ROCK_TOKEN=operator, **mine), 69, address)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with serving([*SERVE, "--insecure", "--drain-s", "600", "--env", f"{TOYS}:BOX"], tmp_path) as server:
        yield server


async def _stopping(client: Client) -> None:
    """Wait until the server takes no new calls."""
    while True:
        try:
            await client.list_envs()
        except RockError:
            return
        await asyncio.sleep(0.01)


async def _in_a_step(address: str, folder: Path, rest: str, interrupt: list[int]) -> str:
    """Start a step, send the signals while it runs, and return what it answers."""
    os.mkfifo(folder / "begun")
    async with Client(address, credentials=Credentials(), retry_for_s=0) as client:
        env = await client.make("toy_box")
        await env.reset("train/0", 1)
        step = asyncio.ensure_future(env.step(f"echo > {folder}/begun; {rest}"))
        await asyncio.to_thread((folder / "begun").read_text)
        for group in interrupt:
            os.killpg(group, signal.SIGINT)  # as a terminal does: to all of them
            await _stopping(client)  # two signals at one instant are one
        return (await step).observation


@pytest.mark.first
def test_ctrl_c_lets_a_running_call_finish(
    running: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    server, address = running
    said = asyncio.run(_in_a_step(address, tmp_path, "sleep 1; echo finished", [server.pid]))
    assert said == "finished\n"
    assert server.wait(timeout=60) == 0
    assert (tmp_path / "log").read_text() == ""


def test_a_second_ctrl_c_ends_what_runs(running: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    server, address = running
    with pytest.raises(RockError):
        asyncio.run(_in_a_step(address, tmp_path, "sleep 600", [server.pid, server.pid]))
    assert server.wait(timeout=60) == 0
    assert (tmp_path / "log").read_text() == ""
