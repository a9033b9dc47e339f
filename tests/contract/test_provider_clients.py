"""The providers' own Python clients against our bytes, over a real socket: what they read, and what they raise."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from agent_runtime.chat import ChatReply, ChatRequest, Refusal, RefusalKind, ToolUse, Usage
from agent_runtime.dialects import (
    COUNT_TOKENS,
    DIALECTS,
    JSON_HEADERS,
    MESSAGES,
    MODELS,
    STREAM_HEADERS,
    Headers,
    model_body,
    models_body,
    of_path,
)

openai = pytest.importorskip("openai", reason="the provider's client is not installed: pip install openai")
anthropic = pytest.importorskip(
    "anthropic", reason="the provider's client is not installed: pip install anthropic"
)

ARGUMENTS = '{"command": "ls -l"}'
CALLED = ChatReply(
    id="r1",
    model="m",
    text="I look.",
    finish="tool_calls",
    usage=Usage(100, 20, 60),
    reasoning="Hm, let me see.",
    tool_calls=(ToolUse("call_1", "shell", ARGUMENTS), ToolUse("call_2", "shell", "{}")),
    created_s=1_700_000_000,
)
SAID = ChatReply(id="r2", model="m", text="All is – well.", finish="stop", usage=Usage(100, 5), created_s=1)
CUT = ChatReply(id="r3", model="m", text="All is", finish="length", usage=Usage(100, 2), created_s=1)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


class Provider:
    """An ASGI application that gives the outcomes it was told to, one a request, and keeps what was asked."""

    def __init__(self) -> None:
        self.outcomes: list[ChatReply | Refusal] = []
        self.asked: list[ChatRequest] = []
        self.signs = 0
        """How many signs of life a stream begins with."""
        self.url = ""

    def will(self, *outcomes: ChatReply | Refusal, signs: int = 0) -> Provider:
        self.outcomes, self.asked, self.signs = list(outcomes), [], signs
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        path = scope["path"]
        dialect = of_path(path)
        if path.startswith(MODELS):
            name = path.removeprefix(MODELS).strip("/")
            told = model_body(name, headers, 4096) if name else models_body(("m", "n"), headers, 4096)
            await self._send(send, 200, JSON_HEADERS, told)
            return
        if path == COUNT_TOKENS:
            self.asked.append(MESSAGES.parse(body, headers))
            await self._send(send, 200, JSON_HEADERS, MESSAGES.count(42))
            return
        assert path in DIALECTS
        try:
            request = dialect.parse(body, headers)
        except Refusal as refusal:
            status, error_headers, error = dialect.refuse(refusal)
            await self._send(send, status, error_headers, error)
            return
        self.asked.append(request)
        outcome = self.outcomes.pop(0)
        if request.stream and (self.signs or isinstance(outcome, ChatReply)):
            own = "own" if self.signs else ""
            parts = [dialect.opening(request, own)] if own else []
            parts += [dialect.keep_alive(request, own)] * self.signs
            if isinstance(outcome, Refusal):
                parts.append(dialect.refuse_mid_stream(outcome, own))
            else:
                parts += dialect.stream(outcome, request, own)
            await self._send(send, 200, STREAM_HEADERS, *parts)
        elif isinstance(outcome, Refusal):
            status, error_headers, error = dialect.refuse(outcome)
            await self._send(send, status, error_headers, error)
        else:
            await self._send(send, 200, JSON_HEADERS, dialect.reply(outcome, request))

    @staticmethod
    async def _send(send: Any, status: int, headers: Headers, *parts: bytes) -> None:
        raw = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    provider = Provider()
    listening = socket.create_server(("127.0.0.1", 0))
    provider.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    config = uvicorn.Config(provider, log_level="warning", lifespan="off", ws="none", loop="asyncio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    yield provider
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture
def oai(served: Provider) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(served: Provider) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0) as client:
        yield client


USER = [{"role": "user", "content": "go"}]


class TestChat:
    tools = ({"type": "function", "function": {"name": "shell", "parameters": SCHEMA}},)

    def test_an_answer_is_read_and_given_back(self, served: Provider, oai: Any) -> None:
        served.will(CALLED, SAID)
        first = oai.chat.completions.create(model="m", messages=USER, tools=self.tools)
        message = first.choices[0].message
        assert (message.content, message.reasoning_content) == (CALLED.text, CALLED.reasoning)
        assert [call.function.arguments for call in message.tool_calls] == [ARGUMENTS, "{}"]
        assert (first.usage.prompt_tokens, first.usage.prompt_tokens_details.cached_tokens) == (100, 60)
        answered = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in message.tool_calls]
        second = oai.chat.completions.create(model="m", messages=[*USER, message, *answered])
        assert second.choices[0].message.content == SAID.text
        echoed = served.asked[1].messages[1]
        assert (echoed.content, echoed.reasoning, echoed.tool_calls) == (
            CALLED.text,
            CALLED.reasoning,
            CALLED.tool_calls,
        )

    @pytest.mark.parametrize("signs", [0, 2])
    def test_a_stream_is_put_together(self, served: Provider, oai: Any, signs: int) -> None:
        served.will(CALLED, signs=signs)
        options = {"include_usage": True}
        with oai.chat.completions.stream(
            model="m", messages=USER, tools=self.tools, stream_options=options
        ) as stream:
            whole = stream.get_final_completion()
        message = whole.choices[0].message
        assert (message.content, whole.choices[0].finish_reason) == (CALLED.text, "tool_calls")
        assert [(call.id, call.function.arguments) for call in message.tool_calls] == [
            ("call_1", ARGUMENTS),
            ("call_2", "{}"),
        ]
        assert whole.usage.total_tokens == 120
        assert whole.id == "chatcmpl-r1"

    def test_usage_is_streamed_only_where_it_is_asked_for(self, served: Provider, oai: Any) -> None:
        served.will(SAID, SAID)
        without = [*oai.chat.completions.create(model="m", messages=USER, stream=True)]
        assert all(chunk.usage is None and chunk.choices for chunk in without)
        options = {"include_usage": True}
        last = [*oai.chat.completions.create(model="m", messages=USER, stream=True, stream_options=options)][
            -1
        ]
        assert last.usage.completion_tokens == 5

    def test_an_error_ends_a_stream(self, served: Provider, oai: Any) -> None:
        served.will(Refusal(RefusalKind.UPSTREAM, "the engine fell over"), signs=1)
        with pytest.raises(openai.APIError, match="the engine fell over"):
            [*oai.chat.completions.create(model="m", messages=USER, stream=True)]


class TestResponses:
    tools = ({"type": "function", "name": "shell", "parameters": SCHEMA, "strict": False},)

    def test_an_answer_is_read_and_given_back(self, served: Provider, oai: Any) -> None:
        served.will(CALLED, SAID)
        first = oai.responses.create(model="m", input=USER, tools=self.tools, store=False)
        assert first.output_text == CALLED.text
        assert (first.status, first.usage.input_tokens_details.cached_tokens) == ("completed", 60)
        calls = [item for item in first.output if item.type == "function_call"]
        assert [call.arguments for call in calls] == [ARGUMENTS, "{}"]
        assert first.output[0].summary[0].text == CALLED.reasoning
        answered = [
            {"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls
        ]
        second = oai.responses.create(model="m", input=[*USER, *first.output, *answered])
        assert second.output_text == SAID.text
        echoed = served.asked[1].messages[1]
        assert (echoed.content, echoed.reasoning, echoed.tool_calls) == (
            CALLED.text,
            CALLED.reasoning,
            CALLED.tool_calls,
        )

    @pytest.mark.parametrize("signs", [0, 2])
    def test_a_stream_is_put_together(self, served: Provider, oai: Any, signs: int) -> None:
        served.will(CALLED, signs=signs)
        with oai.responses.stream(model="m", input=USER, tools=self.tools) as stream:
            whole = stream.get_final_response()
        assert whole.output_text == CALLED.text
        calls = [item for item in whole.output if item.type == "function_call"]
        assert [(call.call_id, call.arguments) for call in calls] == [("call_1", ARGUMENTS), ("call_2", "{}")]
        assert whole.usage.total_tokens == 120

    def test_a_cut_answer_says_so(self, served: Provider, oai: Any) -> None:
        served.will(CUT)
        whole = oai.responses.create(model="m", input="go")
        assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")

    def test_an_error_ends_a_stream(self, served: Provider, oai: Any) -> None:
        served.will(Refusal(RefusalKind.CONTEXT_OVERFLOW, "full"), signs=1)
        last = [*oai.responses.create(model="m", input=USER, stream=True)][-1]
        assert (last.type, last.response.error.code) == ("response.failed", "context_length_exceeded")


class TestMessages:
    tools = ({"name": "shell", "input_schema": SCHEMA},)

    def test_an_answer_is_read_and_given_back(self, served: Provider, claude: Any) -> None:
        served.will(CALLED, SAID)
        first = claude.messages.create(model="m", max_tokens=99, messages=USER, tools=self.tools)
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (first.content[2].input, first.content[3].input) == ({"command": "ls -l"}, {})
        assert (first.usage.input_tokens, first.usage.cache_read_input_tokens) == (40, 60)
        answered = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": "ok",
                "is_error": block.id == "call_2",
            }
            for block in first.content[2:]
        ]
        history = [
            *USER,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": answered},
        ]
        second = claude.beta.messages.create(model="m", max_tokens=99, messages=history)
        assert second.content[0].text == SAID.text
        echoed = served.asked[1].messages[1]
        assert (echoed.content, echoed.reasoning) == (CALLED.text, CALLED.reasoning)
        assert [call.id for call in echoed.tool_calls] == ["call_1", "call_2"]
        assert [message.content for message in served.asked[1].messages[2:]] == ["ok", "Error: ok"]

    @pytest.mark.parametrize("signs", [0, 2])
    def test_a_stream_is_put_together(self, served: Provider, claude: Any, signs: int) -> None:
        served.will(CALLED, signs=signs)
        with claude.messages.stream(model="m", max_tokens=99, messages=USER, tools=self.tools) as stream:
            whole = stream.get_final_message()
        assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (whole.content[0].thinking, whole.content[1].text) == (CALLED.reasoning, CALLED.text)
        assert whole.content[0].signature
        assert (whole.content[2].input, whole.content[3].input) == ({"command": "ls -l"}, {})
        assert (whole.stop_reason, whole.usage.output_tokens) == ("tool_use", 20)

    def test_tokens_are_counted(self, served: Provider, claude: Any) -> None:
        served.will()
        counted = claude.messages.count_tokens(model="m", messages=USER, system="s", tools=self.tools)
        assert counted.input_tokens == 42
        assert [message.content for message in served.asked[0].messages] == ["s", "go"]

    def test_an_error_ends_a_stream(self, served: Provider, claude: Any) -> None:
        served.will(
            Refusal(RefusalKind.CONTEXT_OVERFLOW, "", details=(("limit", 9), ("prompt", 10))), signs=1
        )
        with (
            pytest.raises(anthropic.APIStatusError, match="prompt is too long: 10 tokens > 9 maximum"),
            claude.messages.stream(model="m", max_tokens=9, messages=USER) as stream,
        ):
            stream.get_final_message()


ASK: dict[str, Callable[[Any, Any, bool], Any]] = {
    "chat": lambda oai, _, stream: oai.chat.completions.create(model="m", messages=USER, stream=stream),
    "responses": lambda oai, _, stream: oai.responses.create(model="m", input="go", stream=stream),
    "messages": lambda _, claude, stream: claude.messages.create(
        model="m", max_tokens=9, messages=USER, stream=stream
    ),
}
RAISED = {
    RefusalKind.BAD_REQUEST: ("BadRequestError", "BadRequestError"),
    RefusalKind.UNAUTHORIZED: ("AuthenticationError", "AuthenticationError"),
    RefusalKind.NOT_FOUND: ("NotFoundError", "NotFoundError"),
    RefusalKind.TOO_LARGE: ("APIStatusError", "RequestTooLargeError"),
    RefusalKind.CONTEXT_OVERFLOW: ("BadRequestError", "BadRequestError"),
    RefusalKind.BUDGET: ("BadRequestError", "APIStatusError"),
    RefusalKind.RATE_LIMIT: ("RateLimitError", "RateLimitError"),
    RefusalKind.UPSTREAM: ("InternalServerError", "InternalServerError"),
    RefusalKind.CLOSED: ("PermissionDeniedError", "PermissionDeniedError"),
}
"""OpenAI's, Anthropic's."""


STOPPED = ChatReply(
    id="r4", model="m", text="All is ", finish="stop", usage=Usage(100, 4), created_s=1, stop="well"
)


class TestStops:
    def test_chat_says_stop(self, served: Provider, oai: Any) -> None:
        served.will(STOPPED)
        whole = oai.chat.completions.create(model="m", messages=USER, stop=["well", "\n"])
        assert (whole.choices[0].finish_reason, whole.choices[0].message.content) == ("stop", "All is ")
        assert served.asked[0].stop == ("well", "\n")

    def test_messages_name_the_sequence(self, served: Provider, claude: Any) -> None:
        served.will(STOPPED, STOPPED)
        asked = {"model": "m", "max_tokens": 9, "messages": USER, "stop_sequences": ["well"]}
        whole = claude.messages.create(**asked)
        with claude.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        for one in (whole, streamed):
            assert (one.stop_reason, one.stop_sequence, one.content[0].text) == (
                "stop_sequence",
                "well",
                "All is ",
            )
        assert served.asked[0].stop == ("well",)

    def test_a_refused_field_is_named(self, served: Provider, oai: Any) -> None:
        served.will()
        with pytest.raises(openai.BadRequestError) as raised:
            oai.chat.completions.create(model="m", messages=USER, max_tokens=0)
        assert (raised.value.param, raised.value.code) == ("max_tokens", "integer_below_min_value")


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("kind", RefusalKind)
    @pytest.mark.parametrize("dialect", ASK)
    def test_a_client_raises_what_the_provider_would_make_it_raise(
        self, served: Provider, oai: Any, claude: Any, dialect: str, kind: RefusalKind, stream: bool
    ) -> None:
        served.will(Refusal(kind, "what happened"))
        library, place = (anthropic, 1) if dialect == "messages" else (openai, 0)
        expected = getattr(library, RAISED[kind][place], library.APIStatusError)
        with pytest.raises(expected) as raised:
            ASK[dialect](oai, claude, stream)
        if kind is RefusalKind.CONTEXT_OVERFLOW and dialect != "messages":
            assert raised.value.code == "context_length_exceeded"

    @pytest.mark.parametrize("kind", [RefusalKind.RATE_LIMIT, RefusalKind.UPSTREAM])
    @pytest.mark.parametrize("dialect", ASK)
    def test_what_passes_is_asked_again(
        self, served: Provider, oai: Any, claude: Any, dialect: str, kind: RefusalKind
    ) -> None:
        served.will(Refusal(kind, "later", retry_after_s=0.01), SAID)
        ASK[dialect](oai.with_options(max_retries=2), claude.with_options(max_retries=2), False)
        assert len(served.asked) == 2

    @pytest.mark.parametrize("kind", [RefusalKind.BUDGET, RefusalKind.CLOSED, RefusalKind.CONTEXT_OVERFLOW])
    @pytest.mark.parametrize("dialect", ASK)
    def test_what_does_not_pass_is_asked_once(
        self, served: Provider, oai: Any, claude: Any, dialect: str, kind: RefusalKind
    ) -> None:
        served.will(Refusal(kind, "over"), SAID)
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            ASK[dialect](oai.with_options(max_retries=2), claude.with_options(max_retries=2), False)
        assert len(served.asked) == 1


class TestModels:
    def test_models_are_listed(self, served: Provider, oai: Any, claude: Any) -> None:
        assert [model.id for model in oai.models.list()] == ["m", "n"]
        assert [model.id for model in claude.models.list()] == ["m", "n"]
        assert oai.models.retrieve("m").owned_by == "ale"
        assert claude.models.retrieve("m").created_at.year == 1970

    def test_a_model_names_its_context(self, served: Provider, oai: Any, claude: Any) -> None:
        told = oai.models.retrieve("m")
        assert (told.context_length, told.max_model_len) == (4096, 4096)
        assert claude.models.retrieve("m").max_input_tokens == 4096
        assert [model.context_length for model in oai.models.list()] == [4096, 4096]
