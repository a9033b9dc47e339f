"""What every wire format does alike: histories in, answers and errors out, streamed or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from dialect_wires import CALLS, READ, SHELL, WIRES, Heard, Wire, reply
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.chat import ChatMessage, ChatReply, ChatRequest, Refusal, RefusalKind, ToolUse
from agent_runtime.dialects import CHAT, DIALECTS, JSON_HEADERS, MESSAGES, of_path

HISTORY = (
    ChatMessage("system", "You mend code."),
    ChatMessage("user", "Mend it.\n\nNow – 直して."),
    ChatMessage("assistant", "I look.", "Let me\nthink.", CALLS),
    ChatMessage("tool", "a.py\nb.py", tool_call_id="call_1"),
    ChatMessage("tool", "", tool_call_id="call_2"),
    ChatMessage("assistant", "", "", (ToolUse("call_3", "shell", "{}"),)),
    ChatMessage("tool", "exit 1", tool_call_id="call_3"),
    ChatMessage("assistant", "Done."),
    ChatMessage("system", "Hurry."),
    ChatMessage("user", "Again."),
)
ASK = ChatRequest((ChatMessage("user", "go"),), tools=(SHELL, READ), model="m", stream=True)
OVERFLOW = (("limit", 4096), ("prompt", 5000), ("completion", 16), ("got", 5016))


@pytest.fixture(params=WIRES, ids=lambda wire: wire.dialect.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


def test_each_wire_format_has_a_client_here() -> None:
    assert [wire.dialect for wire in WIRES] == list(DIALECTS.values())


def parse(wire: Wire, body: bytes) -> ChatRequest:
    return wire.dialect.parse(body, {})


def told(said: ChatReply) -> Heard:
    """Return what a client should understand of a reply."""
    usage = said.usage
    return Heard(
        said.text,
        said.reasoning,
        [[call.id, call.name, call.arguments] for call in said.tool_calls],
        said.finish,
        (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens),
        ended=True,
    )


def same(heard: Heard, expected: Heard) -> bool:
    def values(one: Heard) -> dict[str, Any]:
        calls = [(*call[:2], meaning(call[2])) for call in one.calls]
        return asdict(one) | {"ids": 0, "deltas": 0, "calls": calls}

    return values(heard) == values(expected)


def meaning(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


class TestHistories:
    @pytest.mark.parametrize("parts", [False, True], ids=["text", "parts"])
    def test_a_history_is_read_as_it_was_written(self, wire: Wire, parts: bool) -> None:
        found = parse(wire, wire.body(HISTORY, (SHELL, READ), parts=parts, stream=True))
        assert [message.role for message in found.messages] == [message.role for message in HISTORY]
        for got, expected in zip(found.messages, HISTORY, strict=True):
            assert (got.content, got.reasoning, got.tool_call_id) == (
                expected.content,
                expected.reasoning,
                expected.tool_call_id,
            )
            assert [(c.id, c.name, meaning(c.arguments)) for c in got.tool_calls] == [
                (c.id, c.name, meaning(c.arguments)) for c in expected.tool_calls
            ]
        assert [(tool.name, tool.description) for tool in found.tools] == [
            ("shell", "Run a command."),
            ("read", "Read a file."),
        ]
        assert [json.loads(tool.parameters) for tool in found.tools] == [
            json.loads(tool.parameters) for tool in (SHELL, READ)
        ]
        assert found.stream
        assert found.model == "m"

    def test_text_and_parts_are_the_same_request(self, wire: Wire) -> None:
        assert parse(wire, wire.body(HISTORY)) == parse(wire, wire.body(HISTORY, parts=True))

    def test_fields_that_nobody_reads_may_be_anything(self, wire: Wire) -> None:
        odd = {
            "temperature": "hot",
            "metadata": 5,
            "logit_bias": [1],
            "x": {"y": [None]},
            "top_p": None,
        }
        assert parse(wire, wire.body(HISTORY, **odd)) == parse(wire, wire.body(HISTORY))

    def test_null_is_as_good_as_left_out(self, wire: Wire) -> None:
        body = json.loads(wire.body(HISTORY)) | {"tools": None, "tool_choice": None, "stream": None}
        found = parse(wire, json.dumps(body).encode())
        assert (found.tools, found.tool_choice, found.stream) == ((), "auto", False)

    def test_a_schema_is_passed_on_as_it_was_sent(self, wire: Wire) -> None:
        schema = '{"type":"object", "zeta":1.0,"alpha":[ ]}'
        marked = wire.body(HISTORY, (SHELL,)).replace(
            json.dumps(json.loads(SHELL.parameters)).encode(), schema.encode()
        )
        assert parse(wire, marked).tools[0].parameters == schema

    def test_half_a_character_from_a_javascript_agent_is_replaced(self, wire: Wire) -> None:
        history = (ChatMessage("user", "cut: \ud83d, whole: \U0001f600, said: \\ud83d"),)
        found = parse(wire, wire.body(history))
        assert found.messages[0].content == "cut: �, whole: \U0001f600, said: \\ud83d"

    def test_roles_of_developers_and_systems_stand_anywhere(self, wire: Wire) -> None:
        found = parse(wire, wire.body((ChatMessage("user", "a"), ChatMessage("system", "b"))))
        assert [message.role for message in found.messages] == ["user", "system"]


class TestRefusedBodies:
    @pytest.mark.parametrize(
        "body", [b"", b"{", b"[]", b"\xff", b'"text"', b'{"messages": ' + b"[" * 100_000, b"null", b"{}"]
    )
    def test_what_is_no_request_is_refused(self, wire: Wire, body: bytes) -> None:
        with pytest.raises(Refusal) as refused:
            parse(wire, body)
        assert refused.value.kind is RefusalKind.BAD_REQUEST

    def test_an_image_is_refused_with_its_place(self, wire: Wire) -> None:
        kind = {"chat": "image_url", "responses": "input_image", "messages": "image"}[wire.dialect.name]
        text = "input_text" if wire.dialect.name == "responses" else "text"
        body = json.loads(wire.body((ChatMessage("user", "a"), ChatMessage("user", "b"))))
        field = "input" if wire.dialect.name == "responses" else "messages"
        body[field][1]["content"] = [{"type": text, "text": "see"}, {"type": kind, kind: {"url": "data:..."}}]
        with pytest.raises(
            Refusal, match=rf"{field}\[1\]\.content\[1\] is an image; the model has no vision"
        ):
            parse(wire, json.dumps(body).encode())

    def test_a_wrong_type_is_named_with_its_path(self, wire: Wire) -> None:
        body = json.loads(wire.body((ChatMessage("user", "a"),)))
        field = "input" if wire.dialect.name == "responses" else "messages"
        body[field][0]["content"] = 5
        with pytest.raises(
            Refusal, match=rf"^{field}\[0\]\.content does not fit: expected str .*got int\. Send"
        ):
            parse(wire, json.dumps(body).encode())

    def test_an_unknown_role_is_named(self, wire: Wire) -> None:
        body = wire.body((ChatMessage("user", "a"),)).replace(b'"user"', b'"boss"')
        with pytest.raises(Refusal, match=r"\[0\]\.role is 'boss', expected .*user"):
            parse(wire, body)

    def test_a_request_without_messages_is_refused(self, wire: Wire) -> None:
        with pytest.raises(Refusal, match="empty"):
            parse(wire, wire.body(()))


ANSWERS = {
    "text": reply(text="Hello, wörld – 直す. " * 40),
    "short": reply(text="ab"),
    "reasoned": reply(text="So.", reasoning="First I think. " * 50),
    "called": reply(finish="tool_calls", tool_calls=CALLS),
    "everything": reply(text="I look.", reasoning="Hm.", finish="tool_calls", tool_calls=CALLS),
    "cut": reply(text="I was abo", finish="length"),
    "cut_call": reply(finish="length", tool_calls=CALLS[:1]),
    "no_arguments": reply(finish="tool_calls", tool_calls=(ToolUse("call_1", "shell", ""),)),
}


class TestAnswers:
    @pytest.mark.parametrize("name", ANSWERS)
    def test_a_client_reads_what_was_said(self, wire: Wire, name: str) -> None:
        said = ANSWERS[name]
        assert same(wire.read(wire.dialect.reply(said, ASK)), told(said))

    @pytest.mark.parametrize("name", ANSWERS)
    def test_a_stream_says_the_same(self, wire: Wire, name: str) -> None:
        said = ANSWERS[name]
        heard = wire.listen(b"".join(wire.dialect.stream(said, ASK)))
        assert same(heard, told(said))
        assert heard.ids == wire.read(wire.dialect.reply(said, ASK)).ids

    @pytest.mark.parametrize("text", ["ab", "x" * 5000])
    def test_a_stream_comes_in_pieces(self, wire: Wire, text: str) -> None:
        heard = wire.listen(b"".join(wire.dialect.stream(reply(text=text), ASK)))
        assert 2 <= heard.deltas <= 40

    def test_an_empty_answer_is_one(self, wire: Wire) -> None:
        for heard in (
            wire.read(wire.dialect.reply(reply(), ASK)),
            wire.listen(b"".join(wire.dialect.stream(reply(), ASK))),
        ):
            assert same(heard, told(reply()))

    @pytest.mark.parametrize("signs", [0, 1, 3])
    def test_a_stream_that_waited_ends_as_one_that_did_not(self, wire: Wire, signs: int) -> None:
        said = ANSWERS["everything"]
        dialect = wire.dialect
        waited = dialect.opening(ASK, "own") + signs * dialect.keep_alive(ASK, "own")
        heard = wire.listen(waited + b"".join(dialect.stream(said, ASK, "own")))
        assert same(heard, told(said))
        assert len(heard.ids) == 1  # clients refuse an answer whose id changes

    def test_a_sign_of_life_is_whole_events(self, wire: Wire) -> None:
        for sign in (wire.dialect.opening(ASK, "own"), wire.dialect.keep_alive(ASK, "own")):
            assert sign.endswith(b"\n\n")
            assert not wire.listen(sign).ended

    def test_a_call_without_an_id_gets_one(self, wire: Wire) -> None:
        said = reply(finish="tool_calls", tool_calls=(ToolUse("", "shell", "{}"), ToolUse("", "shell", "{}")))
        heard = wire.read(wire.dialect.reply(said, ASK))
        streamed = wire.listen(b"".join(wire.dialect.stream(said, ASK)))
        ids = [call[0] for call in heard.calls]
        assert all(ids)
        assert len(set(ids)) == 2
        assert ids == [call[0] for call in streamed.calls]


STATUSES = {
    RefusalKind.BAD_REQUEST: (400, 400),
    RefusalKind.UNAUTHORIZED: (401, 401),
    RefusalKind.NOT_FOUND: (404, 404),
    RefusalKind.TOO_LARGE: (413, 413),
    RefusalKind.CONTEXT_OVERFLOW: (400, 400),
    RefusalKind.BUDGET: (400, 402),
    RefusalKind.RATE_LIMIT: (429, 429),
    RefusalKind.UPSTREAM: (500, 500),
    RefusalKind.CLOSED: (403, 403),
}
"""OpenAI's, Anthropic's."""


class TestErrors:
    @pytest.mark.parametrize("kind", RefusalKind)
    def test_the_status_decides_whether_to_repeat(self, wire: Wire, kind: RefusalKind) -> None:
        status, headers, body = wire.dialect.refuse(Refusal(kind, "what happened"))
        assert status == STATUSES[kind][wire.dialect is MESSAGES]
        assert set(JSON_HEADERS) <= set(headers)
        error = json.loads(body)["error"]
        assert error["type"]
        if kind is not RefusalKind.CONTEXT_OVERFLOW:
            assert error["message"] == "what happened"

    def test_an_engine_that_says_when_to_come_back_is_overloaded(self, wire: Wire) -> None:
        status, headers, _ = wire.dialect.refuse(Refusal(RefusalKind.UPSTREAM, "down", retry_after_s=2.2))
        assert status == (529 if wire.dialect is MESSAGES else 503)
        assert dict(headers)["retry-after"] == "3"
        assert dict(headers)["retry-after-ms"] == "2200"

    @pytest.mark.parametrize(("after_s", "header"), [(None, "1"), (0.0, "1"), (0.2, "1"), (7.0, "7")])
    def test_a_429_always_says_when_to_come_back(
        self, wire: Wire, after_s: float | None, header: str
    ) -> None:
        _, headers, _ = wire.dialect.refuse(
            Refusal(RefusalKind.RATE_LIMIT, "slow down", retry_after_s=after_s)
        )
        assert dict(headers)["retry-after"] == header

    def test_what_no_repetition_helps_says_nothing_of_repeating(self, wire: Wire) -> None:
        for kind in (RefusalKind.BUDGET, RefusalKind.CLOSED, RefusalKind.CONTEXT_OVERFLOW):
            assert "retry-after" not in dict(wire.dialect.refuse(Refusal(kind, "over"))[1])

    @pytest.mark.parametrize("details", [OVERFLOW, ()], ids=["numbers", "none"])
    def test_a_full_context_is_told_in_words_that_agents_look_for(self, wire: Wire, details: Any) -> None:
        words = {
            "chat": ["maximum context length is 4096 tokens", "5000", "reduce the length of the messages"],
            "responses": ["exceeds the context window"],
            "messages": ["prompt is too long: 5000 tokens > 4096 maximum"],
        }[wire.dialect.name]
        bare = {
            "chat": ["exceeds the context window", "reduce the length of the messages"],
            "messages": ["prompt is too long"],
        }
        refusal = Refusal(RefusalKind.CONTEXT_OVERFLOW, "full", details=details)
        error = json.loads(wire.dialect.refuse(refusal)[2])["error"]
        for word in words if details else bare.get(wire.dialect.name, words):
            assert word in error["message"]
        if wire.dialect is MESSAGES:
            assert error["type"] == "invalid_request_error"
        else:
            assert error["code"] == "context_length_exceeded"

    @pytest.mark.parametrize("kind", RefusalKind)
    @pytest.mark.parametrize("opened", ["", "own"])
    def test_an_error_in_a_stream_is_heard_and_no_answer(
        self, wire: Wire, kind: RefusalKind, opened: str
    ) -> None:
        begun = wire.dialect.opening(ASK, opened) if opened else b""
        heard = wire.listen(begun + wire.dialect.refuse_mid_stream(Refusal(kind, "over"), opened))
        assert heard.error
        assert not heard.ended
        assert not heard.finish
        assert len(heard.ids) <= 1


class TestPaths:
    @pytest.mark.parametrize("path", DIALECTS)
    def test_a_path_has_its_dialect(self, path: str) -> None:
        assert of_path(path).path == path
        assert of_path(f"{path}/x") is of_path(path)

    def test_any_other_path_is_answered_as_most_expect(self) -> None:
        assert of_path("/v1/messagesX") is CHAT
        assert of_path("/nowhere") is CHAT


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ARGUMENTS = (
    st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS | st.lists(TEXTS), max_size=3).map(json.dumps)
    | TEXTS
)


@st.composite
def replies(draw: st.DrawFn) -> ChatReply:
    named = draw(st.lists(st.tuples(st.sampled_from(["shell", "read"]), ARGUMENTS), max_size=3))
    calls = tuple(ToolUse(f"call_{at}", name, arguments) for at, (name, arguments) in enumerate(named))
    return reply(
        text=draw(TEXTS), reasoning=draw(TEXTS), tool_calls=calls, finish="tool_calls" if calls else "stop"
    )


class TestEchoes:
    @settings(max_examples=60)
    @given(said=replies())
    @pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.dialect.name)
    def test_an_answer_that_comes_back_as_history_is_the_same_message(
        self, wire: Wire, said: ChatReply
    ) -> None:
        _, echoed = parse(wire, wire.echo(wire.dialect.reply(said, ASK))).messages
        assert (echoed.role, echoed.content, echoed.reasoning) == ("assistant", said.text, said.reasoning)
        assert [(call.id, call.name, meaning(call.arguments)) for call in echoed.tool_calls] == [
            (call.id, call.name, meaning(call.arguments)) for call in said.tool_calls
        ]

    @settings(max_examples=60)
    @given(said=replies())
    @pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.dialect.name)
    def test_streamed_or_not_a_client_hears_the_same(self, wire: Wire, said: ChatReply) -> None:
        heard = wire.listen(b"".join(wire.dialect.stream(said, ASK)))
        whole = wire.read(wire.dialect.reply(said, ASK))
        assert (heard.text, heard.reasoning, heard.finish) == (whole.text, whole.reasoning, whole.finish)
        assert [call[:2] for call in heard.calls] == [call[:2] for call in whole.calls]
        assert [call[2] for call in heard.calls] == [call.arguments for call in said.tool_calls]  # as sampled
