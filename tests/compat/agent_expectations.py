"""What each CLI agent does in each mode, at the versions of its spec: measured, then written down here.

Read by `benchmarks.agents`, which reports where a run did otherwise, and by `tests/compat`, which fails there. An agent that
is not named here is held to what must be so of any: an exact record without unexplained tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compat.agent_policy import Mode
from compat.agent_runs import Outcome

from agent_runtime.calls.nodes import Drift
from agent_runtime.gateway.session import SessionEnd
from agent_runtime.types import TurnLabel
from benchmarks.scaffold import markdown_table

__all__ = ["AGENTS", "Expected", "expected", "misses", "not_offered", "page"]

AGENTS = ("aider", "claude-code", "codex", "mini-swe-agent", "opencode", "pi", "qwen-code")
_NOT_OFFERED = {
    ("aider", Mode.PARALLEL): "it has no tools; it reads edits out of the text",
    ("aider", Mode.UNKNOWN_TOOL): "it has no tools; it reads edits out of the text",
    ("aider", Mode.SUB_AGENTS): "it has none",
    ("aider", Mode.COMPACTION): "it sums up between two messages of its user only, and is given one",
    ("mini-swe-agent", Mode.STREAMING): "it asks for whole answers only",
    ("mini-swe-agent", Mode.SUB_AGENTS): "it has none",
    ("mini-swe-agent", Mode.COMPACTION): "it has none: a full context ends it, as in `overflow`",
    ("pi", Mode.SUB_AGENTS): "it has none",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run must show."""

    fixed: bool = True
    beside_main: frozenset[TurnLabel] = frozenset()
    """Labels of calls, all of them, but for main."""
    reasons: frozenset[Drift] = frozenset()
    """Of its drift, all of them."""
    end: SessionEnd = SessionEnd.EXITED
    why: str = ""
    """What is to be seen, for people."""


def _expect(*labels: TurnLabel, fixed: bool = True, why: str, **others: Any) -> Expected:
    return Expected(fixed, frozenset(labels), why=why, **others)


_ERROR, _SUMMARY = TurnLabel.ERROR, TurnLabel.SUMMARY
_SUB_AGENT = Expected(beside_main=frozenset({TurnLabel.SUB_AGENT}))
_AGAIN = _expect(_ERROR, why="it asks again, without that answer")
_COMPACTS = _expect(_SUMMARY, why="it compacts and goes on")
_COMPACTS_TWICE = _expect(
    _SUMMARY,
    reasons=frozenset({Drift.HISTORY}),
    why="it compacts, then writes the new context anew once more, with words of its own before the policy's answer",
)
_ASKS_AGAIN = _expect(TurnLabel.SUPERSEDED, why="it asks the same again; the first sample is superseded")
_ENDS_FULL = _expect(fixed=False, end=SessionEnd.CONTEXT_FULL, why="it ends")
_TAKES_EMPTY = _expect(fixed=False, why="it takes it for the end, with exit code 0")
_EXPECTED: dict[tuple[str, Mode], Expected] = {
    **{(name, Mode.LONG_CUT): _ASKS_AGAIN for name in AGENTS},
    **{(name, Mode.OVERFLOW): _COMPACTS for name in ("claude-code", "opencode", "pi")},
    **{(name, Mode.COMPACTION): _COMPACTS for name in ("claude-code", "codex", "opencode", "pi")},
    **{(name, Mode.SUB_AGENTS): _SUB_AGENT for name in ("claude-code", "codex", "opencode", "qwen-code")},
    **{(name, Mode.OVERFLOW): _ENDS_FULL for name in ("codex", "mini-swe-agent")},
    **{(name, Mode.EMPTY): _TAKES_EMPTY for name in ("codex", "opencode", "pi")},
    ("aider", Mode.OVERFLOW): _expect(
        fixed=False, end=SessionEnd.CONTEXT_FULL, why="it ends, with exit code 0"
    ),
    ("aider", Mode.EMPTY): _TAKES_EMPTY,
    ("aider", Mode.MALFORMED): _expect(
        reasons=frozenset({Drift.HISTORY}),
        why="an edit that does not fit is told to the policy, in a prompt that is written anew",
    ),
    **{(name, Mode.EMPTY): _AGAIN for name in ("claude-code", "mini-swe-agent", "qwen-code")},
    **{(name, Mode.MALFORMED): _AGAIN for name in ("mini-swe-agent", "qwen-code")},
    ("mini-swe-agent", Mode.UNKNOWN_TOOL): _AGAIN,
    **{("qwen-code", mode): _COMPACTS_TWICE for mode in (Mode.OVERFLOW, Mode.COMPACTION)},
}
_PLAIN = Expected()


def not_offered(agent: str, mode: Mode) -> str:
    """Return why there is no such mode of an agent; empty where there is."""
    return _NOT_OFFERED.get((agent, mode), "")


def expected(agent: str, mode: Mode) -> Expected | None:
    """Return what is known of an agent in a mode; None for an agent that nothing is known of."""
    return _EXPECTED.get((agent, mode), _PLAIN) if agent in AGENTS else None


def misses(outcome: Outcome) -> list[str]:
    """Return where a run did otherwise than it must, or than is known of its agent."""
    found = []
    if not outcome.exact:
        found.append("the record is not what the engine saw and sampled")
    if outcome.unexplained_tokens:
        found.append(f"{outcome.unexplained_tokens} sampled tokens are in no labelled call")
    if outcome.session_end is SessionEnd.NEVER_SPOKE:
        found.append("the agent never asked the gateway anything")
    wanted = expected(outcome.agent, outcome.mode)
    if wanted is None:
        return found
    if not outcome.happened:
        found.append("what the mode is about did not take place")
    others = frozenset(outcome.account.calls) - {TurnLabel.MAIN}
    for what, got, want in (
        ("fixed", outcome.fixed, wanted.fixed),
        ("labels beside main", sorted(others), sorted(wanted.beside_main)),
        ("reasons of drift", sorted(outcome.reasons), sorted(wanted.reasons)),
        ("session's end", str(outcome.session_end), str(wanted.end)),
    ):
        if got != want:
            found.append(f"{what}: got {got!r}, expected {want!r}")
    return found


def page(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the results as Markdown: who fixes the bug in which mode, then every cell."""
    by = {(cell["agent"], cell.get("mode")): cell for cell in cells}
    names = list(dict.fromkeys(str(cell["agent"]) for cell in cells))
    absent = [name for name in names if (name, None) in by]
    names = [name for name in names if name not in absent]
    modes = [mode for mode in Mode if any((name, mode) in by for name in names)]
    seen = [[mode, *(_glance(by.get((name, mode), {})) for name in names)] for mode in modes]
    rows = [_row(by[name, mode]) for name in names for mode in modes if (name, mode) in by]
    header = (
        "agent",
        "mode",
        "fixed",
        "exact",
        "drift",
        "unexplained tokens",
        "calls",
        "session",
        "exit code",
        "",
    )
    notes = [f"- `{name}`: not installed ({by[name, None]['not_installed']})" for name in absent]
    return "\n".join(
        [
            "A cell is one run. `yes`: the bug is gone; `no`: it is not, as is known of this agent; `–`: not offered.",
            "",
            markdown_table(("mode", *names), seen),
            "",
            markdown_table(header, rows),
            "",
            *notes,
        ]
    ).rstrip()


def _glance(cell: Mapping[str, Any]) -> str:
    if "fixed" not in cell:
        return "–" if "not_offered" in cell else "not measured"
    return ("yes" if cell["fixed"] else "no") + (" (**unexpected**)" if cell["misses"] else "")


def _row(cell: Mapping[str, Any]) -> list[object]:
    start: list[object] = [f"{cell['agent']} {cell.get('version', '')}".strip(), cell["mode"]]
    if "fixed" not in cell:
        said = f"not offered: {cell['not_offered']}" if "not_offered" in cell else f"failed: {cell['error']}"
        return [*start, *[""] * 7, said]
    known = expected(cell["agent"], Mode(cell["mode"]))
    drift = ", ".join(f"{count} {reason}" for reason, count in cell["reasons"].items())
    calls = ", ".join(f"{count} {label}" for label, count in cell["calls"].items())
    notes = [*cell["misses"], known.why if known else ""]
    exact = "yes" if cell["exact"] else "**no**"
    figures = ["yes" if cell["fixed"] else "no", exact, drift or 0, cell["unexplained_tokens"], calls]
    return [*start, *figures, cell["session_end"], cell["exit_code"], "; ".join(filter(None, notes))]
