"""The stateful shell: what lasts from one command to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rock_env.backends.process import ProcessBackend
from rock_env.sandbox import ExecResult, Sandbox
from rock_env.shell import run_in_shell
from rock_env.spec import SandboxSpec


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Sandbox]:
    backend = ProcessBackend(root=tmp_path, isolation="none")
    yield await backend.create(SandboxSpec(), sandbox_id="box")
    await backend.close()


async def run(box: Sandbox, command: str, timeout_s: float = 30.0) -> ExecResult:
    return await run_in_shell(box, command, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("mkdir -p 'a b'; cd 'a b'", 'basename "$PWD"', b"a b\n"),
        ("export COLOUR=teal", "sh -c 'echo $COLOUR'", b"teal\n"),
        ("x='two\nlines'; list=(1 2 3)", 'echo "$x" ${#list[@]}', b"two\nlines 3\n"),
        ("export GONE=1", "unset GONE", b""),
        ('hi() { echo "hi $1"; }', "hi you", b"hi you\n"),
        ("alias say=echo", "say so", b"so\n"),
        ("set -u; shopt -s nullglob", "echo none*; echo $-", b"\n"),
        ("umask 077", "umask", b"0077\n"),
        ("readonly FIXED=1; exit 3", "echo $FIXED", b"1\n"),
        ("x=1; false", "echo $x", b"1\n"),
    ],
)
async def test_state_lasts(box: Sandbox, first: str, then: str, expected: bytes) -> None:
    await run(box, first)
    result = await run(box, then)
    assert result.stdout.startswith(expected)


async def test_what_was_unset_stays_unset(box: Sandbox) -> None:
    await run(box, "export X=1; f() { :; }")
    await run(box, "unset X; unset -f f")
    assert (await run(box, "echo ${X-unset}; type f")).stdout.startswith(b"unset\n")
    assert (await run(box, "f")).exit_code == 127


async def test_exit_codes_are_the_commands(box: Sandbox) -> None:
    assert (await run(box, "exit 7")).exit_code == 7
    assert (await run(box, "false")).exit_code == 1
    assert (await run(box, "true | false")).exit_code == 1
    assert (await run(box, "set -e; false; echo no")).stdout == b""
    assert (await run(box, "if")).exit_code not in (0, None)
    assert (await run(box, "kill -9 $$")).signal == 9


async def test_both_outputs_come_in_order_and_input_is_empty(box: Sandbox) -> None:
    assert (await run(box, "echo 1; echo 2 >&2; echo 3; cat")).stdout == b"1\n2\n3\n"


async def test_several_lines_and_here_documents(box: Sandbox) -> None:
    command = "cat > file <<'EOF'\n$not expanded `at all`\nEOF\nwc -l < file\n" + "# padding\n" * 20_000
    assert (await run(box, command)).stdout.strip() == b"1"
    assert await box.read_file("file") == b"$not expanded `at all`\n"


async def test_a_command_that_times_out_leaves_the_state_before_it(box: Sandbox) -> None:
    await run(box, "x=before")
    assert (await run(box, "x=after; sleep 600", timeout_s=0.3)).timed_out
    assert (await run(box, "echo $x")).stdout == b"before\n"
