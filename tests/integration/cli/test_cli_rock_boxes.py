"""`ale rock ps | exec | shell | logs | cp | gc | doctor` as a user runs them, against a real server."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import ale, refused

from rock_env.client import Client, Credentials
from rock_env.local import EmbeddedServer, start_embedded


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with start_embedded(["--isolation=none"]) as started:
        yield started


@pytest.fixture
def box(server: EmbeddedServer) -> Iterator[str]:
    """Make a sandbox that nobody renews and return its id."""

    async def make() -> str:
        async with Client(server.address, credentials=Credentials()) as client:
            made = await client.sandboxes.create(lease_s=600, labels={"who": "cli"})
            made.let_go()
            return made.id

    async def delete(box: str) -> None:
        async with Client(server.address, credentials=Credentials()) as client:
            await (await client.sandboxes.attach(box)).delete()

    made = asyncio.run(make())
    yield made
    asyncio.run(delete(made))


@pytest.fixture
def rock(server: EmbeddedServer, tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return ale("rock", *words, cwd=tmp_path, ROCK_ADDRESS=server.address, **environment)

    return run


def test_ps_lists_what_is_and_what_was(rock, box: str, server: EmbeddedServer) -> None:  # type: ignore[no-untyped-def]
    listed = rock("ps", "--label", "who=cli")
    assert listed.returncode == 0, listed.stderr
    heads, row = listed.stdout.splitlines()
    assert heads.split() == ["id", "state", "backend", "environment", "labels", "age", "ends", "reason"]
    assert row.split()[:5] == [box, "RUNNING", "process", "-", "who=cli"]
    assert "in 9m" in row or "in 10m" in row
    (told,) = json.loads(rock("ps", "--label", "who=cli", "--json").stdout)
    assert (told["id"], told["state"], told["labels"]) == (box, "RUNNING", {"who": "cli"})
    assert rock("ps", "--label", "who=nobody").stdout == "no sandboxes with these labels\n"


@pytest.mark.parametrize(
    ("words", "code", "out", "said"),
    [
        (["--", "sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n"),
        (["sh", "-c", "kill -TERM $$"], 143, "", ""),
        (["/no/such/program"], 127, "", "No such file"),
        (["--", "printenv", "A"], 1, "", ""),
    ],
    ids=["exit", "signal", "absent", "no variable"],
)
def test_exec_ends_as_its_command(  # type: ignore[no-untyped-def]
    rock, box: str, words: list[str], code: int, out: str, said: str
) -> None:
    done = rock("exec", box, *words)
    assert (done.returncode, done.stdout) == (code, out)
    assert said in done.stderr


def test_exec_takes_options_input_and_an_abbreviated_id(rock, box: str, server: EmbeddedServer) -> None:  # type: ignore[no-untyped-def]
    short = box.removeprefix("sb-")[:10]
    done = rock("exec", "--env", "A=1 2", "--cwd", "/", short, "sh", "-c", "echo $A; pwd")
    assert (done.returncode, done.stdout) == (0, "1 2\n/\n")
    done = rock("exec", "--timeout", "0.1", box, "sleep", "600")
    assert done.returncode == 124
    assert "longer than 0.1 s" in done.stderr
    piped = subprocess.run(
        [sys.executable, "-m", "ale", "rock", "exec", "-i", "--rock", server.address, box, "wc", "-c"],
        input=b"x" * 3_000_000,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert piped.stdout.strip() == b"3000000"
    many = rock("exec", box, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(many.stdout) == 3_000_000


def test_ctrl_c_goes_to_the_command(box: str, server: EmbeddedServer) -> None:
    script = "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.01; done"
    with subprocess.Popen(
        [sys.executable, "-m", "ale", "rock", "exec", "--rock", server.address, box, "sh", "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == b"caught\n"
        assert running.wait(timeout=60) == 9


def size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_a_shell_on_a_terminal_has_its_size_and_keys(box: str, server: EmbeddedServer) -> None:
    ours, theirs = pty.openpty()
    size(ours, 31, 77)
    former = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [sys.executable, "-m", "ale", "rock", "shell", "--rock", server.address, box],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"},
    ) as running:
        seen = b""

        def until(text: bytes) -> None:
            nonlocal seen
            deadline = time.monotonic() + 60
            while text not in seen:
                assert select.select([ours], [], [], deadline - time.monotonic())[0], seen
                seen += os.read(ours, 65536)
            seen = seen.partition(text)[2]

        try:
            os.write(ours, b"echo rea''dy; stty size\n")
            until(b"ready")
            until(b"31 77")
            size(ours, 20, 50)
            running.send_signal(signal.SIGWINCH)
            os.write(ours, b"while test \"$(stty size)\" != '20 50'; do sleep 0.01; done; echo resi''zed\n")
            until(b"resized")
            os.write(ours, b"echo beg''un; sleep 600; echo not-''killed\n")
            until(b"begun")
            os.write(ours, b"\x03")
            until(b"^C")
            os.write(ours, b"echo nex''t; exit 5\n")
            until(b"next")
            assert running.wait(timeout=60) == 5
        finally:
            running.kill()
    assert termios.tcgetattr(theirs) == former
    os.close(ours)
    os.close(theirs)


def test_a_terminal_that_knows_no_size_is_80_by_24(box: str, server: EmbeddedServer) -> None:
    ours, theirs = pty.openpty()
    size(ours, 0, 0)
    with subprocess.Popen(
        [sys.executable, "-m", "ale", "rock", "exec", "--rock", server.address, "-t", box, "stty", "size"],
        stdin=theirs,
        stdout=subprocess.PIPE,
    ) as running:
        out, _ = running.communicate(timeout=60)
    assert (out, running.returncode) == (b"24 80\r\n", 0)
    os.close(ours)
    os.close(theirs)


def test_a_terminal_is_asked_for_in_vain_without_one(rock, box: str) -> None:  # type: ignore[no-untyped-def]
    refused(rock("exec", "-t", box, "true"), 2, "-t needs a terminal")


def test_logs_tell_processes_and_what_they_wrote(rock, box: str, server: EmbeddedServer) -> None:  # type: ignore[no-untyped-def]
    async def start() -> None:
        async with Client(server.address, credentials=Credentials()) as client:
            attached = await client.sandboxes.attach(box)
            await attached.start_process(["sh", "-c", "echo out; echo err >&2; sleep 0.2; echo end; exit 3"])

    assert rock("logs", box).stdout == "no background processes\n"
    asyncio.run(start())
    listed = rock("logs", box).stdout
    assert f"{box}/p1" in listed
    done = rock("logs", "-f", f"{box}/p1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\nend\n", "err\n")
    (told,) = json.loads(rock("logs", box, "--json").stdout)
    assert (told["id"], told["end"]["exit_code"]) == (f"{box}/p1", 3)
    refused(rock("logs", f"{box}/p9"), 66, "p9")


def test_cp_copies_files_and_trees_both_ways(rock, box: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "file").write_text("content")
    (tmp_path / "tool").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "tool").chmod(0o755)
    done = rock("cp", "tool", f"{box}:bin/")
    assert (done.returncode, done.stderr) == (0, "1 file, 19 bytes\n")
    assert rock("exec", box, "./bin/tool").stdout == "ran\n"
    assert rock("cp", "tree", f"{box}:copy").returncode == 0
    assert rock("cp", "tree", f"{box}:copy").returncode == 0
    found = rock("exec", box, "sh", "-c", "cd copy && find . -type f | sort").stdout
    assert found == "./sub/file\n./tree/sub/file\n", "the second time the folder was there"
    done = rock("cp", f"{box}:copy", "back")
    assert (done.returncode, done.stderr) == (0, "2 files, 14 bytes\n")
    assert (tmp_path / "back" / "tree" / "sub" / "file").read_text() == "content"
    assert rock("cp", f"{box}:copy/sub/file", ".").returncode == 0
    assert (tmp_path / "file").read_text() == "content"
    refused(rock("cp", "tree", "elsewhere"), 2, "expected one of SRC and DST to be ID:PATH")
    refused(rock("cp", "nothing", f"{box}:x"), 66, "no file or folder nothing here")
    refused(rock("cp", f"{box}:nothing", "x"), 66, "nothing")


def test_a_sandbox_is_made_and_deleted(rock) -> None:  # type: ignore[no-untyped-def]
    made = rock("create", "--label", "made=here", "--lifetime", "500")
    assert made.returncode == 0, made.stderr
    box = made.stdout.strip()
    (info,) = json.loads(rock("ps", "--json", "--label", "made=here").stdout)
    assert (info["id"], info["lease_expires_at"]) == (box, None)
    assert info["expires_at"] - info["created_at"] == pytest.approx(500)
    refused(rock("rm", box, "nosuch"), 66, "no sandbox 'nosuch'")
    assert box in rock("ps").stdout, "none is deleted where one is unknown"
    done = rock("rm", box[3:9], box)
    assert (done.returncode, done.stderr) == (0, f"{box} is deleted\n")
    assert box not in rock("ps").stdout


def test_gc_and_doctor_look_at_the_node(rock, box: str) -> None:  # type: ignore[no-untyped-def]
    done = rock("gc", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "0 would be deleted\n")
    done = rock("gc", "--json")
    assert json.loads(done.stdout) == []
    done = rock("doctor", "--json")
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["server"]["status"] == "ok"
    assert found["census process"]["status"] == "ok", found["census process"]
    assert done.returncode == (1 if "fail" in {one["status"] for one in found.values()} else 0)
    assert rock("ps", "--label", "who=cli").stdout.count(box) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["exec", "nosuch", "true"], 66, "no sandbox 'nosuch' among the"),
        (["exec", "sb-0123456789abcdef", "true"], 66, "no sandbox 'sb-0123456789abcdef'"),
        (["exec", "--env", "A", "x", "true"], 2, "bad --env 'A'"),
        (["ps", "--label", "x"], 2, "bad --label 'x'"),
        (["ps", "--rock", "127.0.0.1:1"], 69, "Start one with `ale rock serve`"),
        (["ps", "--rock", "nonsense"], 2, "neither an address nor a context"),
        (["create", "--snapshot", "sn-none"], 66, "no snapshot 'sn-none'"),
        (["create", "--label", "x"], 2, "bad --label 'x'"),
        (["shell", "nosuch"], 66, "no sandbox 'nosuch'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_in_one_line(rock, words: list[str], code: int, said: str) -> None:  # type: ignore[no-untyped-def]
    refused(rock(*words), code, said)


def test_an_ambiguous_id_lists_what_it_fits(rock, box: str, server: EmbeddedServer) -> None:  # type: ignore[no-untyped-def]
    async def another() -> str:
        async with Client(server.address, credentials=Credentials()) as client:
            made = await client.sandboxes.create(lease_s=60)
            made.let_go()
            return made.id

    other = asyncio.run(another())
    refused(rock("exec", "sb-", "true"), 2, "'sb-' fits 2 sandboxes", box, other, "Give more of the id")


def test_a_wrong_token_is_refused_in_one_line(tmp_path: Path) -> None:
    from secure_servers import SERVER, serving, token

    text = token(tmp_path / "t.json", "blue", "sandbox")
    command = [word for word in SERVER if word != "--isolation=none"]
    with serving([*command, "--isolation=none", "--tokens=t.json"], tmp_path) as (_, address):
        good = ale("rock", "ps", cwd=tmp_path, ROCK_ADDRESS=address, ROCK_TOKEN=text)
        assert (good.returncode, good.stdout) == (0, "no sandboxes\n"), good.stderr
        wrong = f"{text[:-1]}{'0' if text[-1] != '0' else '1'}"
        done = ale("rock", "ps", cwd=tmp_path, ROCK_ADDRESS=address, ROCK_TOKEN=wrong)
        refused(done, 77, "is not valid")
        assert wrong not in done.stderr
        refused(ale("rock", "ps", cwd=tmp_path, ROCK_ADDRESS=address), 77, "set ROCK_TOKEN")
        done = ale("rock", "gc", cwd=tmp_path, ROCK_ADDRESS=address, ROCK_TOKEN=text)
        assert done.returncode == 0
        assert "only your own failed sandboxes" in done.stderr
