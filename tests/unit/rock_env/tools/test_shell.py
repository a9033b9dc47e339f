"""The stateful shell: what lasts from one command to the next."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rock_env.backends.process.backend import ProcessBackend
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


async def test_the_first_command_begins_in_a_folder_and_later_ones_where_the_last_left(box: Sandbox) -> None:
    await box.write_file("there/file", b"")

    async def where(command: str) -> bytes:
        return (await run_in_shell(box, f"{command}; ls", timeout_s=30.0, start_in="there")).stdout

    assert await where(":") == b"file\n"
    assert await where("cd ..") == b"there\n"
    assert await where(":") == b"there\n"
    await run(box, "rm -r there; mkdir else; cd else")
    assert await where(":") == b"", "and without the folder, nothing is said of it"


@pytest.fixture
async def bare(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sandbox]:
    """Return a box whose PATH has a few programs or hardly any, and no bash."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ["mkdir", *str(getattr(request, "param", "")).split()]:
        (programs / name).symlink_to(shutil.which(name) or "")
    backend = ProcessBackend(root=tmp_path, isolation="none")
    yield await backend.create(SandboxSpec(env=(("PATH", str(programs)),)), sandbox_id="box")
    await backend.close()


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("mkdir -p 'a b'; cd 'a b'", 'echo "${PWD##*/}"', b"a b\n"),
        ("export COLOUR=teal", "/bin/sh -c 'echo $COLOUR'", b"teal\n"),
        ("x=\"it's 'so'\nand\nx=y\"", 'echo "$x"', b"it's 'so'\nand\nx=y\n"),
        ("x=1; export GONE=1", "unset GONE x; echo ${GONE-none}", b"none\n"),
        ("set -u; set -f", "echo *; echo ${none-left}; echo $none", b"*\nleft\n"),
        ("umask 077", "umask", b"0077\n"),
        ("set -e; x=1; false", "echo $x; false; echo no", b"1\n"),
        ("set -a; x=1", "y=2; /bin/sh -c 'echo $x $y'", b"1 2\n"),
        ("x=1", "echo $x\necho '\n' \\\\", b"1\n\n \\\n"),
    ],
)
async def test_without_bash_it_is_sh(bare: Sandbox, first: str, then: str, expected: bytes) -> None:
    await run(bare, first)
    result = await run(bare, then)
    assert result.stdout.startswith(expected)
    assert (await run(bare, "echo ${BASH_VERSION-none}")).stdout == b"none\n"


@pytest.mark.parametrize("bare", ["", "cat mv"], indirect=True)
async def test_without_bash_the_ends_of_commands_are_the_same(bare: Sandbox) -> None:
    assert (await run(bare, "x=1; exit 7")).exit_code == 7
    assert (await run(bare, "echo $x; if")).exit_code not in (0, None)
    assert (await run(bare, "echo $x >&2; read y; echo $? $1")).stdout == b"1\n1\n"
    assert (await run(bare, "x=2; while :; do :; done", timeout_s=0.3)).timed_out
    assert (await run(bare, "echo $x; true | exit 3")).exit_code == 3
    assert (await run(bare, "echo $x")).stdout == b"1\n"
