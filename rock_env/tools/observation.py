"""How tool results are told: what was left out and how to see it, and nothing that differs between equal runs."""

from __future__ import annotations

import re

from rock_env.sandbox import ExecResult

__all__ = ["cut_middle", "tell_command"]

_ENDED = r"(?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|tests ran)"
_UNSTABLE = (
    (re.compile(rf"({_ENDED}) in [\d.]+s\b(?: \([\d:]+\))?"), r"\1"),  # pytest's last line
    (re.compile(r"^(Ran \d+ tests?) in [\d.]+s$", re.MULTILINE), r"\1"),  # unittest's
    (re.compile(r"(<[^<>\n]* at )0x[0-9a-f]{6,16}(?=[ >])"), r"\g<1>0x..."),  # Python's default repr
    # What reprlib, or pytest, cut off in the address, before it, or in a list of them.
    (re.compile(r"( at 0x)[0-9a-f]{1,16}(?=\.\.\.)"), r"\1"),
    (re.compile(r"(\.\.\.)[a-z ]{0,16}0?x[0-9a-f]{1,16}(?=>)"), r"\1"),
    (re.compile(r"(<[A-Za-z_][\w.]{0,99}(?: [\w.]{1,99}){0,9}\.\.\.)[0-9a-f]{6,16}(?=>)"), r"\1"),
    (re.compile(r"(\.\.\.)[0-9a-f]{1,16}(?=>(?:[\])}]|, <))"), r"\1"),
)
_ON_THE_HOST = re.compile(r"boxes/[\w-]{1,64}/files/(work|home|tmp)(?![\w.-])")
"""A folder of a box without isolation, as the host sees it, below the folder that holds all: its name holds the box's id."""
_ABOVE = re.compile(r"(?:/[\w.+@~-]+)+/")
_LONGEST_ABOVE = 4096
_IN_THE_BOX = {"work": "/workspace", "home": "/home/agent", "tmp": "/tmp"}


def tell_command(result: ExecResult, *, timeout_s: float, max_chars: int, how_to_see: str) -> str:
    """Tell how a command ended and what it printed, at most about `max_chars` of it."""
    if result.timed_out:
        head = f"timed out after {timeout_s:g} s and was killed"
    elif result.signal is not None:
        head = f"killed by signal {result.signal}"
    else:
        head = f"exit code {result.exit_code}"
    if result.oom_killed:
        head += "; out of memory"
    if result.truncated:
        head += f"; it printed more than {len(result.stdout)} bytes, and the rest was dropped"
    # The tools' commands write all to stdout; stderr tells of a shell that could not begin.
    output = (result.stdout + result.stderr).decode(errors="replace").rstrip("\n")
    for pattern, stable in _UNSTABLE:
        output = pattern.sub(stable, output)
    output = _as_in_the_box(output)
    output = cut_middle(output, max_chars=max_chars, how_to_see=how_to_see)
    return f"[{head}]\n{output}" if output else f"[{head}]"


def _as_in_the_box(output: str) -> str:
    """Name folders of a box as it sees them. Takes time in proportion to the output, whatever that is."""
    parts, done, seen = list[str](), 0, 0
    for found in _ON_THE_HOST.finditer(output):
        above = output[max(seen, found.start() - _LONGEST_ABOVE) : found.start()]
        begin = next((path.start() for path in _ABOVE.finditer(above) if path.end() == len(above)), None)
        if begin is not None:
            parts += [output[done : found.start() - len(above) + begin], _IN_THE_BOX[found[1]]]
            done = found.end()
        seen = found.end()
    return "".join([*parts, output[done:]])


def cut_middle(text: str, *, max_chars: int, how_to_see: str) -> str:
    """Keep the beginning and the end of a long text, and say how much is missing between."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    left_out = text[half : len(text) - half]
    lines = left_out.count("\n")
    note = f"[... {len(left_out)} characters ({lines} line breaks) left out; {how_to_see} ...]"
    return f"{text[:half]}\n{note}\n{text[len(text) - half :]}"
