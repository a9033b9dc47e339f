"""Every family's template: continuing from samples against rendering anew, answers read, and the reasons for drift."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("transformers")

from agent_session import TOOLS, echo, system, tool, use, user
from template_models import CHATML, LLAMA31, QWEN3, SMOLLM2, SMOLLM3, TEMPLATES, THINKING, tokenizer_with

from agent_runtime.chat import ChatMessage, Refusal
from agent_runtime.templates.check import RenderDrift, self_check
from agent_runtime.templates.families import choose, tool_template
from agent_runtime.templates.jinja import JinjaToolTemplate

MADE = {name: tool_template(tokenizer_with(text), 4096) for name, text in TEMPLATES.items()}
HEAD = (system("You help."), user("Go on."))


@pytest.mark.parametrize(
    ("text", "family", "why"),
    [
        (QWEN3, "qwen", "ChatML with tools"),
        (LLAMA31, "llama", "start_header_id"),
        (SMOLLM2, "smollm", "knows no tools"),
        (SMOLLM3, "smollm", "shows tools"),
        (CHATML, "generic", "knows no tools"),
        ("[INST]{{ tools }}", "generic", "not known here"),
    ],
)
def test_the_family_is_read_off_the_chat_template(text, family, why):
    choice = choose(tokenizer_with(text))
    assert choice.family.name == family
    assert why in choice.why


def test_a_tokenizer_without_a_chat_template_is_refused():
    with pytest.raises(ValueError, match="no chat template"):
        choose(tokenizer_with(""))


def test_plain_answers_are_exact_everywhere():
    for name, template in MADE.items():
        assert {"plain answer", "plain answer to a user only"} <= set(template.check.exact), name


@pytest.mark.parametrize(
    ("name", "sample", "reason"),
    [
        ("qwen", "answer with reasoning", RenderDrift.REASONING),
        ("qwen", "tool call, spaced otherwise", RenderDrift.ARGUMENTS),
        ("llama", "answer with white space at its ends", RenderDrift.WHITE_SPACE),
        ("llama", "tool call, spaced otherwise", RenderDrift.ARGUMENTS),
        ("smollm3", "answer with reasoning", RenderDrift.REASONING),
        ("generic", "answer with white space at its ends", RenderDrift.WHITE_SPACE),
        ("generic", "answer with reasoning", RenderDrift.REASONING),
    ],
)
def test_drift_is_named_by_its_reason(name, sample, reason):
    assert MADE[name].check.drift[sample] is reason


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        (
            "qwen",
            {"tool call", "parallel tool calls", "tool call after reasoning", "plain answer with tools"},
        ),
        ("llama", {"tool call", "parallel tool calls", "plain answer with tools"}),
        ("smollm2", {"tool call", "parallel tool calls", "answer with white space at its ends"}),
        ("smollm3", {"tool call", "parallel tool calls", "plain answer with tools"}),
        ("generic", {"tool call", "parallel tool calls"}),
    ],
)
def test_tool_calls_in_the_templates_own_hand_are_exact(name, samples):
    check = MADE[name].check
    assert samples <= set(check.exact), check.drift
    assert self_check(MADE[name]) == check


def sampled(template, text, end=True):
    ids = template.encode(text)
    return np.append(ids, np.int32(template.end_id)) if end else ids


@pytest.mark.parametrize("name", MADE)
def test_a_conversation_of_several_turns_is_the_whole_rendered(name):
    template = MADE[name]
    history, ids = [*HEAD], template.open(HEAD, TOOLS)
    for turn in range(3):
        ids = np.concatenate([ids, sampled(template, f"It is done {turn}.")])
        said = ChatMessage("assistant", f"It is done {turn}.")
        following = user(f"Then {turn} é?\n")
        ids = np.concatenate([ids, template.extend((following,), TOOLS, closed=True)])
        history += [said, following]
    assert ids.tolist() == template.open(history, TOOLS).tolist()
    assert ids.dtype == np.int32


@pytest.mark.parametrize("name", MADE)
def test_an_answer_cut_short_is_closed_by_what_follows(name):
    closed = MADE[name].extend((user("x"),), (), closed=True)
    assert MADE[name].extend((user("x"),), (), closed=False).tolist() == [MADE[name].end_id, *closed.tolist()]


@pytest.mark.parametrize("name", ["qwen", "smollm2", "smollm3", "generic"])
def test_hermes_calls_are_read_as_they_were_sampled(name):
    template = MADE[name]
    text = (
        "<think>\nhm\n</think>\n\nI look.\n"
        '<tool_call>\n{"name": "bash", "arguments": {"command":  "ls"}}\n</tool_call>\n'
        '<tool_call>{"name": "edit", "arguments": {}}</tool_call>'
    )
    said = template.parse(sampled(template, text), TOOLS)
    assert (said.text, said.reasoning, said.malformed) == ("I look.", "hm", "")
    assert [(call.name, call.arguments) for call in said.tool_calls] == [
        ("bash", '{"command":  "ls"}'),
        ("edit", "{}"),
    ]
    assert len({call.id for call in said.tool_calls}) == 2
    assert template.parse(sampled(template, text), ()).tool_calls == ()


@pytest.mark.parametrize(
    "call", [r'{"name": "ba\ud83dsh", "arguments": {}}', r'{"name": "bash", "arguments": "ls \ud83d"}']
)
def test_half_a_surrogate_pair_in_a_call_can_be_sent_and_stored(call):
    """A model may write one, in an escape; as a character no wire and no file can hold it."""
    said = MADE["qwen"].parse(sampled(MADE["qwen"], f"<tool_call>\n{call}\n</tool_call>"), TOOLS)
    (found,) = said.tool_calls
    assert b"?" in f"{found.name} {found.arguments}".encode()


@pytest.mark.parametrize("name", MADE)
def test_half_a_surrogate_pair_in_a_history_can_be_shown(name):
    called = ChatMessage("assistant", "", tool_calls=(use("bash", r'{"command": "ls \ud83d"}'),))
    assert len(MADE[name].open((user("x"), called, tool("")), TOOLS))


def test_llama_calls_are_read_bare_tagged_and_several_at_once():
    template = MADE["llama"]
    one = '{"name": "bash", "parameters": {"command": "ls"}}'
    two = '{"name": "edit", "parameters": {}}'
    for text in (one, f"<|python_tag|>{one}<|eom_id|>", f"I look.<|python_tag|>{one}", f"{one}; {two}"):
        said = template.parse(sampled(template, text), TOOLS)
        assert not said.malformed
        assert said.tool_calls[0].arguments == '{"command": "ls"}'
        assert len(said.tool_calls) == 1 + (two in text)
        assert said.text == ("I look." if "look" in text else "")
    assert template.parse(sampled(template, '{"answer": 4}'), TOOLS).text == '{"answer": 4}'


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("qwen", 'So.\n<tool_call>\n{"name": "bash", "arguments": {"command": "l', None),
        ("qwen", "<tool_call>nothing</tool_call>", None),
        ("qwen", '<tool_call>{"name": "bash", "arguments": {"a": ]}}</tool_call>', '{"a": ]}}'),
        ("qwen", '<tool_call>{"name": "bash", "arguments": [1]}</tool_call>', "[1]"),
        ("llama", '<|python_tag|>{"name": "bash", "parameters": {"a"', None),
        ("llama", '{"name": "bash", "parameters": {"a": }}', None),
        ("llama", '{"name": "bash", "parameters": "ls"}', "ls"),
    ],
)
def test_malformed_calls_are_reported_and_kept_as_sampled(name, text, arguments):
    said = MADE[name].parse(sampled(MADE[name], text), TOOLS)
    assert said.malformed
    if arguments is None:
        assert said.tool_calls == ()
        assert said.text == text.strip()
    else:
        assert said.tool_calls[0].arguments == arguments


def test_reasoning_that_the_prompt_opened_is_no_text():
    template = tool_template(tokenizer_with(THINKING), 4096)
    assert template.check.drift["plain answer"] is RenderDrift.REASONING
    said = template.parse(sampled(template, "It is easy.\n</think>\n\nDone."), ())
    assert (said.reasoning, said.text) == ("It is easy.", "Done.")
    cut = template.parse(sampled(template, "It is ea", end=False), ())
    assert (cut.reasoning, cut.text) == ("It is ea", "")


def test_parsing_never_raises_whatever_is_sampled():
    pieces = [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        '{"name": "a"',
        "}",
        "[",
        "]",
        '"',
        "{" * 3000,
    ]
    random = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(random.choice(pieces, random.integers(1, 8)))
        for name in ("qwen", "llama"):
            said = MADE[name].parse(sampled(MADE[name], text), TOOLS)
            assert all(json.dumps(call.name) for call in said.tool_calls)


def test_an_agents_text_cannot_be_the_sentinel():
    template = MADE["qwen"]
    tricky = "answer-7f3a9c51e2 again"
    ids = template.extend((user(tricky),), (), closed=True)
    assert tricky in tokenizer_with(QWEN3).decode(ids.tolist())


def test_what_the_template_refuses_is_the_agents_bad_request():
    refusing = CHATML.replace(
        "{% for", "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% for", 1
    )
    tokenizer = tokenizer_with(refusing)
    template = JinjaToolTemplate(tokenizer, 100, choose(tokenizer_with(QWEN3)).family)
    with pytest.raises(Refusal, match="no tools"):
        template.open((user("x"), tool("y")), ())
    assert template.check.drift["tool call"] is RenderDrift.REFUSED


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "without a special token"),
        (CHATML.replace("| trim", "| upper"), "as it is"),
        (
            CHATML.replace("{% for m in messages %}", "{{ messages | length }}{% for m in messages %}"),
            "cannot be extended",
        ),
    ],
)
def test_a_template_that_cannot_be_extended_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        tool_template(tokenizer_with(text), 100)


def test_histories_with_calls_are_shown_also_by_templates_that_take_but_one():
    calls = (use("bash", '{"command": "ls"}', "a"), use("edit", "{}", "b"))
    history = (*HEAD, ChatMessage("assistant", "I look.", tool_calls=calls), tool("x", "a"), tool("y", "b"))
    for name, template in MADE.items():
        text = tokenizer_with(TEMPLATES[name]).decode(template.open(history, TOOLS).tolist())
        assert [piece for piece in ('"ls"', "edit", "I look.", "x", "y") if piece not in text] == [], name


@pytest.mark.parametrize("name", MADE)
def test_an_echo_of_what_was_parsed_is_what_was_sampled(name):
    template = MADE[name]
    text = '{"name": "bash", "parameters": {"a": 1}}' if name == "llama" else "Fine."
    said = template.parse(sampled(template, text), TOOLS)
    call = type("Answered", (), {"parsed": said})
    assert echo(call).tool_calls == said.tool_calls
