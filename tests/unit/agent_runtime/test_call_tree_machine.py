"""Random agents against the tree of calls: whatever they do to their histories, the record is what the engine saw."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from agent_session import TOOLS, Session, called, echo, system, tool, user
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent_runtime.calls.tree import Call, Drift
from agent_runtime.chat import ChatMessage, ChatRequest
from agent_runtime.types import TurnLabel

KINDS = ("text", "one", "two", "broken", "unknown", "thought")


class Chat:
    """One conversation as its agent holds it."""

    def __init__(self, name: str, label: TurnLabel, start: list[ChatMessage], tools) -> None:
        self.name = name
        self.label = label
        self.history = start
        self.tools = tools
        self.last: Call | None = None
        """The call whose answer is the history's last message."""
        self.points: list[tuple[Call, list[ChatMessage]]] = []
        """Answers of this context, each with the history that ends with it."""


class Agents(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.chats: list[Chat] = []
        self.expected: list[TurnLabel] = []
        self.drift = Counter()
        self.count = 0
        self.keys: list[bytes] = []
        """Of each call's request."""
        self.repaired: set[int] = set()
        """Calls whose answer the agent changed before it went on from it."""

    # What agents say and do.

    def fresh(self, words: str) -> str:
        self.count += 1
        return f"{words} number {self.count}, which nobody said before"

    def answer(self, kind: str) -> str:
        text = self.fresh("answer")
        arguments = json.dumps({"command": f"run {self.count}", "n": self.count}, indent=1)
        return {
            "text": text,
            "one": called(text, ("bash", arguments)),
            "two": called(text, ("bash", arguments), ("edit", "{}")),
            "broken": called(text, ("bash", '{"command": "x' + str(self.count))),
            "unknown": called(text, ("web_search", arguments)),
            "thought": f"<think>\nhm {self.count}\n</think>\n\n{called(text, ('bash', arguments))}",
        }[kind]

    def echo(self, call: Call, how: int) -> list[ChatMessage]:
        """Return an answer as some agent sends it back: rewritten, and yet the same."""
        told = echo(call)
        if how & 1:
            told = replace(told, content=f"{told.content}\n", reasoning="")
        calls = []
        for each in told.tool_calls:
            try:
                value = json.loads(each.arguments)
            except ValueError:
                value = {"repaired": how} if how & 2 else None
            text = each.arguments if value is None else json.dumps(value, separators=(",", ":"))
            if how & 2 and value:
                text = json.dumps(dict(reversed(value.items())), indent=2)
            name = "invalid" if each.name == "web_search" and how & 2 else each.name
            identity = f"renamed_{each.id}" if how & 4 else each.id
            calls.append(replace(each, name=name, arguments=text, id=identity))
        told = replace(told, tool_calls=tuple(calls))
        if how & 8 and calls:
            return [replace(told, tool_calls=()), ChatMessage("assistant", "", tool_calls=tuple(calls))]
        return [told]

    def results(self, message: ChatMessage) -> list[ChatMessage]:
        return [tool(self.fresh("result"), each.id) for each in message.tool_calls] or [
            user(self.fresh("reply"))
        ]

    def ask(self, chat: Chat, kind: str, *, drift=Drift.NONE, parent=None, deliver=True) -> Call:
        kind = kind if chat.tools else "text"
        call = self.session.ask(
            chat.history, self.answer(kind), tools=chat.tools, conversation=chat.name, deliver=deliver
        )
        assert call.drift is drift
        assert call.parent is parent
        if drift is not Drift.NONE:
            self.drift[drift] += 1
        self.expected.append(chat.label)
        self.keys.append(self.session.match.key)
        return call

    def took(self, chat: Chat, call: Call, how: int, *, fresh_context=False) -> None:
        """The agent appends an answer to its history."""
        if fresh_context:
            chat.points = []
        chat.history = [*chat.history, *self.echo(call, how)]
        chat.points.append((call, chat.history))
        chat.last = call
        if how & 2 and call.parsed.malformed:
            self.repaired.add(call.index)

    def pick(self, data) -> Chat:
        return data.draw(st.sampled_from(self.chats))

    @property
    def main(self) -> Chat | None:
        return next((chat for chat in self.chats if chat.label is TurnLabel.MAIN), None)

    # Rules.

    @precondition(lambda self: self.main is None)
    @rule(kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def main_begins(self, kind, how):
        chat = Chat("", TurnLabel.MAIN, [system(), user(self.fresh("task"))], TOOLS)
        self.chats.append(chat)
        self.took(chat, self.ask(chat, kind), how)

    @rule()
    def side_call(self):
        chat = Chat("", TurnLabel.SIDE, [system("Name it."), user(self.fresh("title of"))], ())
        self.ask(chat, "text")

    @precondition(lambda self: self.main is not None)
    @rule(kind=st.sampled_from(KINDS), how=st.integers(0, 15), named=st.booleans())
    def sub_agent_begins(self, kind, how, named):
        name = f"helper-{self.count}" if named else ""
        start = [system(self.fresh("You help")), user(self.fresh("errand"))]
        chat = Chat(name, TurnLabel.SUB_AGENT, start, TOOLS[:1])
        self.chats.append(chat)
        self.took(chat, self.ask(chat, kind), how)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def goes_on(self, data, kind, how):
        chat = self.pick(data)
        chat.history = [*chat.history, *self.results(chat.history[-1])]
        self.took(chat, self.ask(chat, kind, parent=chat.last), how)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), again=st.sampled_from(KINDS))
    def answer_is_lost(self, data, kind, again):
        chat = self.pick(data)
        chat.history = [*chat.history, *self.results(chat.history[-1])]
        self.ask(chat, kind, parent=chat.last, deliver=False)
        self.expected[-1] = TurnLabel.SUPERSEDED
        self.took(chat, self.ask(chat, again, parent=chat.last), 0)

    @precondition(lambda self: self.chats)
    @rule(data=st.data())
    def asks_the_same_again(self, data):
        chat = self.pick(data)
        call, history = chat.points[-1]
        length = len(history) - (2 if history[-2].role == "assistant" else 1)
        request = ChatRequest(tuple(history[:length]), chat.tools, stream=True, conversation=chat.name)
        assert self.session.tree.match(request).key == self.keys[call.index]

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def goes_back(self, data, kind, how):
        chat = self.pick(data)
        chat.last, chat.history = data.draw(st.sampled_from(chat.points))
        chat.points = chat.points[: 1 + [call for call, _ in chat.points].index(chat.last)]
        chat.history = [*chat.history, user(self.fresh("otherwise"))]
        self.took(chat, self.ask(chat, kind, parent=chat.last), how)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def drops_an_answer(self, data, kind, how):
        """It liked the answer so little that its history does not even have it."""
        chat = self.pick(data)
        chat.history = [*chat.history, *self.results(chat.history[-1])]
        before = chat.last
        dropped = self.ask(chat, kind, parent=before)
        self.expected[-1] = TurnLabel.ERROR
        chat.history = [*chat.history, user(self.fresh("that was nothing"))]
        shown = dropped if dropped.parsed.malformed else before
        self.took(chat, self.ask(chat, kind, parent=shown), how)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def rewrites_a_message(self, data, kind, how):
        chat = self.pick(data)
        if all(call.index in self.repaired for call, _ in chat.points):
            return  # nothing in such a history tells where it comes from
        at = max(i for i, message in enumerate(chat.history) if message.role in ("user", "tool"))
        chat.history = [*chat.history, *self.results(chat.history[-1])]
        chat.history[at] = replace(chat.history[at], content=self.fresh("cut short"))
        self.took(chat, self.ask(chat, kind, drift=Drift.HISTORY), how, fresh_context=True)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def rewrites_the_last_answer(self, data, kind, how):
        chat = self.pick(data)
        results = self.results(chat.history[-1])
        last = next(i for i in reversed(range(len(chat.history))) if chat.history[i].content.strip())
        chat.history = [*chat.history, *results]
        chat.history[last] = replace(chat.history[last], content=self.fresh("improved"))
        # A repaired call is no hint of its own: what differs in the text is named by the calls if those differ too.
        found = self.session.tree.match(ChatRequest(tuple(chat.history), chat.tools, conversation=chat.name))
        assert found.drift in (Drift.ANSWER_TEXT, Drift.ANSWER_CALLS)
        self.took(chat, self.ask(chat, kind, drift=found.drift), how, fresh_context=True)

    @precondition(lambda self: self.chats)
    @rule(data=st.data(), kind=st.sampled_from(KINDS), how=st.integers(0, 15))
    def compacts(self, data, kind, how):
        chat = self.pick(data)
        chat.history = [*chat.history, *self.results(chat.history[-1]), user(self.fresh("Sum it all up"))]
        summary = self.ask(chat, "text", parent=chat.last)
        self.expected[-1] = TurnLabel.SUMMARY
        chat.history = [chat.history[0], user(f"What went before:\n{summary.parsed.text}\nGo on.")]
        self.took(chat, self.ask(chat, kind, drift=Drift.COMPACTION), how, fresh_context=True)

    # What holds whatever they do.

    @invariant()
    def drift_is_counted_by_reason(self):
        assert self.session.tree.drift == self.drift

    @precondition(lambda self: self.main is not None)
    @invariant()
    def labels_are_as_meant(self):
        assert self.session.labels() == [label.value for label in self.expected]

    @precondition(lambda self: self.session.tree.calls)
    @invariant()
    def the_record_is_what_the_engine_saw(self):
        self.session.check()


Agents.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # making a failure smaller takes longer than a test may
)
TestRandomAgents = Agents.TestCase
