"""What each call of a session was for, and the account of all of them.

Read from the whole tree, since what a call was may show later only: a title may be asked before the first tool is offered, a
summary is one once a context begins with it, an answer was superseded when the same is asked again. Rules, the first that
fits (design: what real agents do):

    superseded   in no later request, never delivered, and asked again with the same prompt
    error        malformed, and left out of a later history whose prompt shows it; or in no later request, and: asked again
                 although delivered; or passed over by a later history; or never delivered; or malformed, and the agent
                 went on from another answer to the same prompt
    summary      the agent says so, or a later context begins with the answer
    main, side   the agent says so
    sub-agent    the agent says so, or names a conversation
    side         it goes on from known calls with tools, without tools, and nothing with tools goes on from it
    as another   what goes on from a context's opening, asks the same again, or opens a fresh context that goes on from known
                 calls (`Call.continues`) is of their conversation; after a compaction main or sub-agent
    side         its context has no tools where the main conversation has some
    sub-agent    its context has tools, but neither the system message nor the first message of the main conversation
    side         likewise without tools, where the main conversation has none either
    main         all others
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.calls.canonical import digest
from agent_runtime.calls.nodes import Call, Drift, Node
from agent_runtime.calls.tree import CallTree
from agent_runtime.chat import Asked
from agent_runtime.types import TurnLabel

__all__ = ["Account", "account", "labels"]


@dataclass(frozen=True, slots=True)
class Account:
    """All calls of a session, as the compatibility suite tells of them."""

    calls: Mapping[TurnLabel, int]
    tokens: Mapping[TurnLabel, int]
    """Sampled tokens."""
    drift: Mapping[Drift, int]
    """Contexts that were opened afresh, by reason; a compaction is one, but is meant."""
    malformed: int
    """Answers with a tool call that could not be read."""
    repaired: int
    """Such answers that the agent sent back repaired; the prompt showed what was sampled."""


def labels(tree: CallTree) -> list[TurnLabel]:
    """Return the label of every call, in their order."""
    main = _main(tree.calls)
    of: list[TurnLabel] = []
    for call in tree.calls:
        of.append(_conversation(call, main, of))
    return [
        _fate(call) or (TurnLabel.SUMMARY if call.asked is Asked.SUMMARY or call.summarises else conversation)
        for call, conversation in zip(tree.calls, of, strict=True)
    ]


def account(tree: CallTree) -> Account:
    """Return the account of a session as it stands."""
    calls, tokens = Counter[TurnLabel](), Counter[TurnLabel]()
    for call, label in zip(tree.calls, labels(tree), strict=True):
        calls[label] += 1
        tokens[label] += len(call.completion.ids)
    malformed = sum(bool(call.parsed.malformed) for call in tree.calls)
    return Account(dict(calls), dict(tokens), dict(tree.drift), malformed, tree.repaired)


def _fate(call: Call) -> TurnLabel | None:
    """Return the label of a call whose answer came to nothing; None for any other."""
    if call.dropped:
        return TurnLabel.ERROR
    if call.continued or call.kept or call.echoed:
        return None
    again = any(other.repeats(call) for other in call.node.asked)
    passed = any(
        child.born > call.index and child.message is not None and child.message.role != "assistant"
        for child in call.node.children.values()
    )
    if not call.delivered and again:
        return TurnLabel.SUPERSEDED
    left = bool(call.parsed.malformed) and any(other.continued for other in call.node.asked)
    if again or passed or left or not call.delivered:
        return TurnLabel.ERROR
    return None


def _conversation(call: Call, main: Call | None, before: Sequence[TurnLabel]) -> TurnLabel:
    """Return what the conversation of a call is (main, sub-agent or side), given those of all calls before it."""
    if call.asked is Asked.MAIN:
        return TurnLabel.MAIN
    if call.asked is Asked.SIDE:
        return TurnLabel.SIDE
    if call.asked is Asked.SUB_AGENT or call.conversation:
        return TurnLabel.SUB_AGENT
    if call.root is not None:
        return before[call.root.index]
    alike = (
        each for each in call.node.asked if (each.asked, each.conversation) == (call.asked, call.conversation)
    )
    first = next(alike)
    if first is not call:  # it alone was compared with what went before
        return before[first.index]
    if call.drift is Drift.COMPACTION:  # a summary may itself be asked without tools, as a side call is
        known = before[_asked_by(call.continues).index] if call.continues is not None else TurnLabel.MAIN
        return TurnLabel.SUB_AGENT if known is TurnLabel.SUB_AGENT else TurnLabel.MAIN
    if _is_aside(call):
        return TurnLabel.SIDE
    if call.continues is not None:
        return before[call.continues.index]
    if main is None or call is main:
        return TurnLabel.MAIN
    if main.has_tools and not call.has_tools:
        return TurnLabel.SIDE
    (system, user), (main_system, main_user) = _beginning(call.node), _beginning(main.node)
    if (system and system == main_system) or user == main_user:
        return TurnLabel.MAIN
    return TurnLabel.SUB_AGENT if call.has_tools else TurnLabel.SIDE


def _is_aside(call: Call) -> bool:
    """Return whether a fresh context goes on from one with tools, has none, and nothing with tools goes on from it."""
    above = call.continues
    return above is not None and above.has_tools and not call.has_tools and not call.kept


def _asked_by(call: Call) -> Call:
    """Return the call of the conversation that a summary is of, where it was asked aside."""
    while _is_aside(call.opening) and call.opening.continues is not None:
        call = call.opening.continues
    return call


def _main(calls: Sequence[Call]) -> Call | None:
    """Return the call that opened the main conversation: the first with tools of which the agent says nothing else."""
    openings = [
        c for c in calls if c.root is None and c.asked in (Asked.UNSAID, Asked.MAIN) and not c.conversation
    ]
    return next((call for call in openings if call.has_tools), openings[0] if openings else None)


def _beginning(node: Node) -> tuple[bytes, bytes]:
    """Return the digests of a history's system message and of the first message after it; `b""` for none."""
    messages = []
    place: Node | None = node
    while place is not None and place.message is not None:
        messages.append(place.message)
        place = place.parent
    found = [digest(message) for message in messages[:-3:-1]]
    if messages and messages[-1].role != "system":
        found = [b"", *found]
    return (*found, b"", b"")[0], (*found, b"", b"")[1]
