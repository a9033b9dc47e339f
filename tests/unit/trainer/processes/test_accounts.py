"""Where processor time goes: shares add up, what a process and its ended children used is found. And the most memory."""

import os
import subprocess
import sys

import pytest

from trainer.processes.accounts import Accounts, most_bytes, processor_s

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_shares_are_of_what_was_spent_since_the_first_look():
    accounts = Accounts()
    assert accounts.shares({"policy": 100.0, "service": 5.0}) == {}
    shares = accounts.shares({"policy": 100.0, "service": 5.0})
    assert shares == {"policy": 0.0, "service": 0.0, "idle": 1.0}


def test_what_the_servers_children_used_counts_as_the_sandboxes():
    run = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', *sys.argv[1:]])\n"
    waiting = f"{run}print('done', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", run, waiting, BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"done\n"
        spent = processor_s(policy=[os.getpid()], service=[], server=server.pid)
        # The kernel counts in ticks, and rounds those of user and system down.
        assert spent["sandboxes"] >= 0.25
        assert spent["policy"] > 0
        server.communicate(b"")


def test_a_sandbox_that_has_ended_still_counts():
    """A worker of environments that was replaced, a zygote that died: the server has waited for it."""
    burnt = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])\n"
    waiting = f"{burnt}print('done', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waiting, BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"done\n"
        spent = processor_s(policy=[], service=[], server=server.pid)
        assert spent["sandboxes"] >= 0.2, (
            "the system counts in hundredths, and user's and system's time apart"
        )
        server.communicate(b"")


def test_a_process_that_is_gone_is_not_guessed():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OSError, match="No such file"):
        processor_s(policy=[gone.pid], service=[], server=None)


def test_the_most_memory_is_that_of_the_largest_process_below():
    """It counts after the memory was given back, and a process below counts as one of its own."""
    held = "held = bytearray(200_000_000)\nheld[::4096] = b'x' * len(held[::4096])\ndel held\n"
    child = f"import sys\n{held}print('done', flush=True)\nsys.stdin.read()"
    below = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", below], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert 200e6 < most_bytes([process.pid]) < 400e6
        process.communicate(b"")


def test_the_memory_of_a_process_that_is_gone_is_not_guessed():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OSError, match="No such file"):
        most_bytes([gone.pid])
