"""The tree of a session's model calls: finds what a history continues, and makes prompts of what was really sampled.

    tree = CallTree(template)
    match = tree.match(request)          no tokens: microseconds a message
    prompt = tree.prompt(match)          tokens; may run in a thread; raises `Refusal`
    call = tree.commit(match, prompt, completion, template.parse(completion.ids, request.tools))
    tree.deliver(call)                   once the agent has the answer: what is asked again after that is no retry
    tree.heard(match)                    of a request that may be refused: the answers that it has were of use

`match.key` names the request, so that a repetition can wait for a call that is still being sampled, or get its answer again.
`labels` says what each call was for, `record.trajectory` makes the record. Owned by one session, in one event loop; it never
waits or samples.

An answer is known by the ids that were sampled; the agent's echo of it is only compared (`canonical`). A history that
continues no answer opens a fresh context, and `Match.drift` says why.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from agent_runtime.calls.canonical import Canonical, Item, canonical_items, digest, joined, tools_digest
from agent_runtime.calls.drift import Origin, explain
from agent_runtime.calls.nodes import Call, Drift, Node, child_of, prompt_ids, walk_down
from agent_runtime.chat import Asked, ChatMessage, ChatRequest, Parsed, ToolSpec, ToolTemplate
from agent_runtime.policy import Completion
from agent_runtime.types import IntArray

__all__ = ["Call", "CallPrompt", "CallTree", "Drift", "Match"]

_RECENT = 16
"""How many of the newest calls may be a summary: agents use one at once, but side calls lie between. So many sets of tools
are looked at, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """What a request is, before anything is sampled for it."""

    parent: Call | None
    new: tuple[ChatMessage, ...]
    """The messages after the parent's answer; the whole history where there is no parent."""
    drift: Drift
    continues: Call | None
    """Of a fresh context: the call that its history goes on from, where one is known."""
    echoes: tuple[Call, ...]
    """Of a fresh context: the calls whose answers it has."""
    key: bytes
    """Of the request: messages in canonical form, tools, model, bound, tool choice, stop texts, seed, number of answers,
    what it is for and whose. Streamed or not is no difference."""
    repaired: bool
    """The parent's answer was malformed; the agent echoes what it made of it, the prompt shows what was sampled."""
    dropped: tuple[Call, ...]
    """Malformed answers that the history leaves out and the prompt shows."""
    request: ChatRequest
    tools: bytes
    node: Node
    pending: tuple[Item, ...]
    """The messages after `node`, which the tree does not hold yet."""


@dataclass(frozen=True, slots=True, eq=False)
class CallPrompt:
    """A prompt: `ids` from the first token, of which `context_ids` come after the parent's answer."""

    context_ids: IntArray
    ids: IntArray

    @property
    def cached_tokens(self) -> int:
        """Return how many tokens earlier calls of the context had already shown or sampled."""
        return len(self.ids) - len(self.context_ids)


class CallTree:
    """All calls of a session, in the order of their answers. Memory grows with new messages and tokens only."""

    def __init__(self, template: ToolTemplate) -> None:
        self.calls: list[Call] = []
        self.drift: Counter[Drift] = Counter()
        """Calls that opened a fresh context although others went before, by reason."""
        self.repaired = 0
        """Calls that go on from a malformed answer which the agent had repaired."""
        self._template = template
        self._roots: dict[bytes, Node] = {}
        self._with_tools = False
        self._told: dict[tuple[ToolSpec, ...], bytes] = {}
        self._answers: dict[bytes, Call] = {}

    def match(self, request: ChatRequest, canonical: Canonical | None = None) -> Match:
        """Return what `request` continues, given its canonical form if that is known. A match may be dropped."""
        items = canonical.items if canonical else tuple(canonical_items(request.messages))
        tools = canonical.tools if canonical else self._tools(request.tools)
        walk = walk_down(self._roots.get(tools) or Node(None, None, 0), items)
        pending = items[walk.depth :]
        parent, shown = walk.answer, walk.answer_at
        if any(item.message.role == "assistant" for item in items[shown + 1 :]):
            parent, shown = None, -1
        origin = Origin(Drift.NONE, None, ())
        repeated = not pending and bool(walk.node.asked)
        if parent is None and not repeated and self.calls:
            others = [root for key, root in self._roots.items() if key != tools][-_RECENT:]
            origin = explain(
                items,
                walk,
                others,
                self._answers,
                self._summaries(request, stranger=_is_system(items[walk.depth : 1])),
                has_tools=bool(request.tools),
            )
        return Match(
            parent=parent,
            new=request.messages[items[shown].end if shown >= 0 else 0 :],
            drift=origin.drift,
            continues=origin.continues,
            echoes=origin.echoes,
            key=_request_key(request, tools, items),
            repaired=walk.repaired and parent is not None,
            dropped=walk.dropped if parent is not None else (),
            request=request,
            tools=tools,
            node=walk.node,
            pending=pending,
        )

    def prompt(self, match: Match) -> CallPrompt:
        """Return the prompt's tokens. Raise `Refusal` for a history that the template cannot show.

        It may run in a thread while other calls are matched and committed, if the template may.
        """
        parent = match.parent
        for twin in () if match.pending else tuple(match.node.asked):
            if twin.parent is parent:  # the same prompt again is the same tokens, kept once
                return CallPrompt(twin.context_ids, prompt_ids(twin))
        if parent is None:
            ids = self._template.open(match.request.messages, match.request.tools)
            return CallPrompt(ids, ids)
        closed = parent.completion.closed
        ids = self._template.extend(match.new, match.request.tools, closed=closed)
        return CallPrompt(ids, np.concatenate([prompt_ids(parent), parent.completion.ids, ids]))

    def commit(
        self,
        match: Match,
        prompt: CallPrompt,
        completion: Completion,
        parsed: Parsed,
        *,
        request: int = -1,
        started_s: float = 0.0,
        sampled_s: float = 0.0,
    ) -> Call:
        """Keep an answer, before the agent sees it; from now on a history may continue it.

        `request` is the number of the request, which the calls of its several answers share; -1: one of its own.
        """
        born = len(self.calls)
        request = born if request < 0 else request
        node = match.node
        if node.parent is None:
            node = self._roots.setdefault(match.tools, node)
        for item in match.pending:
            node = child_of(node, item, born)
        answer = ChatMessage("assistant", parsed.text, parsed.reasoning, parsed.tool_calls)
        said = [digest(answer)]
        before = node
        if node.parent is not None and node.message is not None and node.message.role == "assistant":
            answer = joined((node.message, answer))  # as the canonical form of a history has it
            before = node.parent
            said.append(digest(answer))
        call = Call(
            index=born,
            parent=match.parent,
            root=match.parent.opening if match.parent else None,
            node=node,
            answer=child_of(before, Item(answer, said[-1], 0), born),
            request=request,
            seed=match.request.seed,
            asked=match.request.asked,
            conversation=match.request.conversation,
            has_tools=bool(match.request.tools),
            drift=match.drift,
            continues=match.continues,
            context_ids=prompt.context_ids,
            completion=completion,
            parsed=parsed,
            started_s=started_s,
            sampled_s=sampled_s,
        )
        if all(sibling.request != request for sibling in node.asked):
            self._note(match)
        node.asked.append(call)
        call.answer.answers.append(call)
        self._answers |= dict.fromkeys(said, call)
        self.calls.append(call)
        return call

    def deliver(self, call: Call) -> None:
        """Note that the agent has the whole answer."""
        call.delivered = True

    def heard(self, match: Match) -> None:
        """Note which answers a request has, also where it gets none itself: the agent could use them."""
        for call in (*match.echoes, *((match.parent,) if match.parent is not None else ())):
            call.echoed = call.echoed or call not in match.dropped

    def _summaries(self, request: ChatRequest, *, stranger: bool) -> list[Call]:
        """Return the newest calls that a fresh context of this request may begin with the answer of.

        `stranger`: under its tools none began with its system message. Without tools that is a call beside the task, which
        may quote any answer, as a commit message's prompt does.
        """
        aside = request.asked in (Asked.SIDE, Asked.SUMMARY) or (
            not request.tools and (self._with_tools or stranger)
        )
        newest = [] if aside else self.calls[-_RECENT:]
        return [
            call
            for call in newest
            if call.conversation == request.conversation and not call.continued and not call.summarises
        ]

    def _note(self, match: Match) -> None:
        if match.parent is not None:
            match.parent.continued = True
        for call in match.echoes:
            call.kept = True
        for call in match.dropped:
            call.dropped = True
        if match.drift is Drift.COMPACTION and match.continues is not None:
            match.continues.summarises = True
        if match.drift is not Drift.NONE:
            self.drift[match.drift] += 1
        self.repaired += match.repaired
        self._with_tools |= bool(match.request.tools)

    def _tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        known = self._told.get(tools)
        if known is None:
            if len(self._told) >= _RECENT:
                self._told.clear()
            known = self._told[tools] = tools_digest(tools)
        return known


def _is_system(items: tuple[Item, ...]) -> bool:
    return any(item.message.role == "system" for item in items)


def _request_key(request: ChatRequest, tools: bytes, items: tuple[Item, ...]) -> bytes:
    key = blake2b(tools, digest_size=16)
    for item in items:
        key.update(item.digest)
    said = (
        request.model,
        request.max_tokens,
        request.tool_choice,
        request.stop,
        request.seed,
        request.n,
        request.asked,
        request.conversation,
    )
    key.update(repr(said).encode("utf-8", "surrogatepass"))
    return key.digest()
