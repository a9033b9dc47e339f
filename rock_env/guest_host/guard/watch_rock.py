"""The parent of a run that judges: it waits for the run and ends as this may be believed to have ended.

Used by `rock_judges` for runs of tests, and by the first code for a program of the verifier's, which goes on in another
Python (`main_rock`). It imports little, since each grader waits for it. Runs in whatever Python the image has, from 3.6 on.
"""

import os
import signal
import sys

from walls_rock import hide_memory  # type: ignore[import-not-found]

ENDED_EARLY, TAMPERED = 71, 72
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REPORT = os.environ.get("ROCK_GUARD_REPORT", "")


def reported_here() -> None:
    """Have no run of tests that this one starts tell the grader how it ended."""
    os.environ["ROCK_GUARD_REPORT"] = ""


def go_on_as(start: "list[str]", program: "list[str]") -> None:
    """Run a Python in a child with two descriptors and the program as its arguments; never return.

    From the second the child reads a secret, and to the first it writes it with the words of `main_rock`.
    """
    reading, writing = os.pipe()
    told, telling = os.pipe()
    secret = os.urandom(16)
    os.write(telling, secret)
    os.close(telling)
    above = os.getppid()
    hide_memory()
    child = os.fork()
    if not child:
        os.set_inheritable(writing, True)
        os.set_inheritable(told, True)
        os.execv(start[0], [*start, f"{writing}:{told}", *program])
    os.close(writing)
    os.close(told)
    status, ended_by_script = _waited(child, above)
    said, code = ended(reading, status)
    if not said.startswith(secret):
        if ended_by_script:
            os._exit(code)
        say("a program of the verifier's ended before it was over", ENDED_EARLY, program[1:])
    said = said[len(secret) :].split(secret)[0]  # a child of the child may have said more
    if said.startswith(b"tampered "):
        say(said[len(b"tampered ") :].decode(errors="replace"), TAMPERED, program[1:])
    judged, at_end, failed, passed = map(int, said.split())
    if judged:
        report(failed, passed, program[1:])
    os._exit(at_end or code)


def ended(reading: int, status: int) -> "tuple[bytes, int]":
    """Return what a child that ended had said on a pipe, and its exit code as a shell tells it."""
    os.set_blocking(reading, False)
    try:
        said = os.read(reading, 4096)
    except BlockingIOError:
        said = b""
    return said, os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _waited(child: int, above: int) -> "tuple[int, bool]":
    """Return how the child ended, and whether the script told it to end; pass on what tells it to."""
    signals = {*_ENDING, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    by_script = False
    while True:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return status, by_script
        came = signal.sigwaitinfo(signals)
        if came.si_signo != signal.SIGCHLD:
            by_script = by_script or not came.si_pid or above in _line(came.si_pid, child)
            os.kill(child, came.si_signo)


def _line(process: int, child: int) -> "list[int]":
    """Return a process and those above it; none where the child is among them."""
    found = []
    while process > 1 and process != child:
        found.append(process)
        try:
            with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
                process = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return [] if process == child else found


def say(why: str, code: int, program: "list[str] | None" = None) -> None:
    """Say that a run does not count, and end."""
    os.write(2, ("rock_guard: " + why + ": this run does not count\n").encode())
    end(code, 0, program)


def end(code: int, passed: int = 0, program: "list[str] | None" = None) -> None:
    """End, and tell the grader how: what a script makes of an exit code is not what it was."""
    report(code, passed, program)
    os._exit(code)


def report(code: int, passed: int, program: "list[str] | None" = None) -> None:
    """Tell the grader how a run of tests ended; `program`: what else than arguments tells runs apart."""
    token, _, path = _REPORT.partition(":")
    if path:
        words = " ".join(program or sys.argv[1:]).replace("\n", " ")
        with open(path, "a", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write(" ".join([token, str(code), str(passed), words]) + "\n")
