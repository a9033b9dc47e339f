"""Conversations with Qwen 3, Llama 3, SmolLM, Gemma and Phi, by templates and tokens that do what theirs do."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

from agent_session import TOOLS, Session, called, echo, system, tool, user
from family_models import MODELS
from transformers import AutoTokenizer

from agent_runtime.calls.drift import Drift
from agent_runtime.chat import ChatMessage, Refusal
from agent_runtime.policy import Message
from agent_runtime.render import HFChatTemplate
from agent_runtime.templates.check import RenderDrift
from agent_runtime.templates.families import choose
from agent_runtime.templates.jinja import JinjaToolTemplate
from trainer.models.named import named_models

LLAMA_CALL = '{"name": "bash", "parameters": {"command": "ls"}}'


class Sampled(JinjaToolTemplate):
    """Answers are sampled a letter at a time, which is not how the tokenizer would cut them."""

    def encode_answer(self, text):
        letters = [self.encode(text)] if "<" in text else [self.encode(letter) for letter in text]
        return np.concatenate([*letters, np.array([self.end_id], np.int32)])


MADE = {
    name: Sampled(tokenizer, 4096, choose(tokenizer).family)
    for name, tokenizer in ((name, model.tokenizer) for name, model in MODELS.items())
}
each = pytest.mark.parametrize("name", MADE)
gemma = pytest.mark.parametrize("name", ["gemma 2", "gemma 3"])


def shown(name, ids):
    return MODELS[name].tokenizer.decode(list(ids))


@each
def test_four_turns_go_on_from_what_was_sampled(name):
    """The ids, not the text: the answer `it it` has a merge that nobody sampled."""
    template = MADE[name]
    session = Session(template)
    history = [system("You help."), user("Go on.")]
    for turn in range(4):
        call = session.ask(history, f"it it {turn}", tools=())
        history += [echo(call), user(f"And then {turn}?")]
    for before, after in zip(session.seen, session.seen[1:], strict=False):
        sampled = template.encode_answer("it it 0")[:-2].tolist()
        assert after[: len(before) + len(sampled)] == before + sampled
    assert session.tree.drift == {}
    assert session.labels() == ["main"] * 4
    session.check()
    again = template.open(history[:-2], ())
    assert shown(name, again) == shown(name, session.seen[3]) or "think" in name
    assert again.tolist() != session.seen[3]  # rendering anew has other tokens


@each
def test_prompts_open_the_answer_and_answers_end_as_the_family_ends_them(name):
    model, template = MODELS[name], MADE[name]
    for made in (template, HFChatTemplate(model.tokenizer, 4096)):
        assert [made.end_id] == model.tokenizer.encode(model.end, add_special_tokens=False)
    chat = HFChatTemplate(model.tokenizer, 4096)
    for messages in ([("user", "Hi.")], [("system", "You help."), ("user", "Hi.")]):
        ids = template.open([ChatMessage(*message) for message in messages], ()).tolist()
        assert ids == chat.open([Message(*message) for message in messages]).tolist()
        assert shown(name, ids).endswith(model.opens)
        assert shown(name, ids).count(model.opens) == 1


@each
def test_the_family_is_known_and_special_tokens_say_nothing(name):
    model, template = MODELS[name], MADE[name]
    assert template.name == model.family
    every = "".join(token for token in model.specials if token != "<|python_tag|>")
    said = template.parse(template.encode(f"</think>\nDone.{every}"), ())
    assert said.text.replace("</think>", "").strip() == "Done."


@each
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_system_message_is_always_shown(name, tools):
    text = shown(name, MADE[name].open([system("You help."), user("Go on.")], tools))
    assert text.index("You help.") < text.index("Go on.")
    assert ("bash" in text) == bool(tools)


def test_gemma_and_the_first_phi_are_told_the_system_text_by_the_user():
    told = [system("You help."), user("Go on.")]
    wanted = "<bos><start_of_turn>user\nYou help.\n\nGo on.<end_of_turn>\n<start_of_turn>model\n"
    assert shown("gemma 2", MADE["gemma 2"].open(told, ())) == wanted
    assert shown("gemma 3", MADE["gemma 3"].open(told, ())) == wanted
    first = "<|user|>\nYou help.\n\nGo on.<|end|>\n<|assistant|>\n"
    assert shown("phi 3, first", MADE["phi 3, first"].open(told, ())) == first
    for name in ("gemma 2", "gemma 3"):
        alone = shown(name, MADE[name].open([system("You help.")], ()))
        assert alone == "<bos><start_of_turn>user\nYou help.<end_of_turn>\n<start_of_turn>model\n"
    empty = shown("phi 3, first", MADE["phi 3, first"].open([system(""), user("Go on.")], ()))
    assert empty == "<|user|>\nGo on.<|end|>\n<|assistant|>\n"


def test_what_a_template_takes_is_told_as_it_is():
    told = [system("You help."), user("Go on."), user("Now.")]
    assert shown("phi 3", MADE["phi 3"].open(told, ())) == (
        "<|system|>\nYou help.<|end|>\n<|user|>\nGo on.<|end|>\n<|user|>\nNow.<|end|>\n<|assistant|>\n"
    )
    assert "named SmolLM" in shown("smollm 2", MADE["smollm 2"].open(told[1:], ()))
    assert "named SmolLM" not in shown("smollm 2", MADE["smollm 2"].open(told, ()))


@each
def test_roles_out_of_turn_are_shown_in_their_order(name):
    session = Session(MADE[name])
    history = [system("S1"), user("U1"), user("U2")]
    history += [echo(session.ask(history, "A1")), user("U3"), system("S2"), user("U4")]
    session.ask(history, "A2")
    text = shown(name, session.seen[1])
    places = [text.index(word) for word in ("S1", "U1", "U2", "A1", "U3", "S2", "U4")]
    assert places == sorted(places)
    assert session.tree.drift == {}
    session.check()


@gemma
def test_gemma_has_neighbours_of_one_role_in_one_turn(name):
    text = shown(name, MADE[name].open([user("U1"), user("U2"), system("S2"), user("U3")], ()))
    assert text == "<bos><start_of_turn>user\nU1\n\nU2\n\nS2\n\nU3<end_of_turn>\n<start_of_turn>model\n"


@gemma
def test_what_gemma_cannot_show_is_refused_with_the_reason(name):
    told = [ChatMessage("assistant", "Hi."), user("Go on.")]
    with pytest.raises(Refusal, match=r"must alternate.*'assistant user'"):
        MADE[name].open(told, ())
    with pytest.raises(Refusal, match="must alternate"):
        HFChatTemplate(MODELS[name].tokenizer, 4096).open([Message("assistant", "Hi.")])


def test_a_session_of_llama_keeps_the_date_that_it_began_with():
    model = MODELS["llama 3.1"]
    tokenizer = model.tokenizer
    session = Session(Sampled(tokenizer, 4096, choose(tokenizer).family))
    history = [user("Go on.")]
    call = session.ask(history)
    tokenizer.chat_template = model.template.replace("26 Jul", "27 Jul")
    session.ask([*history, echo(call), user("And then?")])
    session.ask([user("Another question.")])
    assert ["26 Jul" in shown("llama 3.1", ids) for ids in session.seen] == [True, True, False]
    session.check()


@pytest.mark.parametrize("name", ["qwen3", "qwen3 thinking"])
@pytest.mark.parametrize("keeps", [True, False])
def test_qwen_goes_on_from_its_thoughts_whatever_the_agent_sends_back(name, keeps):
    session = Session(MADE[name])
    thought = "It is easy.\n</think>\n\nDone."
    answer = thought if name == "qwen3 thinking" else f"<think>\n{thought}"
    history = [user("Go on.")]
    call = session.ask(history, answer)
    assert (call.parsed.reasoning, call.parsed.text) == ("It is easy.", "Done.")
    said = echo(call) if keeps else ChatMessage("assistant", call.parsed.text)
    session.ask([*history, said, user("And then?")], answer)
    assert "It is easy." in shown(name, session.seen[1])
    assert session.tree.drift == {}
    session.check()


def test_qwen_drops_old_thoughts_where_a_history_is_rendered_anew():
    template, session = MADE["qwen3"], Session(MADE["qwen3"])
    assert template.check.drift["answer with reasoning"] is RenderDrift.REASONING
    call = session.ask([user("Go on.")], "<think>\nIt is easy.\n</think>\n\nDone.")
    session.ask([user("Go on!!"), echo(call), user("And then?")])
    assert "It is easy." not in shown("qwen3", session.seen[1])
    assert session.tree.drift == {Drift.HISTORY: 1}


@pytest.mark.parametrize("name", ["qwen3", "smollm 3", "llama 3.1", "llama 3.2"])
def test_families_with_tools_are_told_of_them_by_their_template(name):
    session, template = Session(MADE[name]), MADE[name]
    told = LLAMA_CALL if template.name == "llama" else called("", ("bash", '{"command": "ls"}')).strip()
    history = [system(), user("Go on.")]
    call = session.ask(history, told)
    assert [(use.name, use.arguments) for use in call.parsed.tool_calls] == [("bash", '{"command": "ls"}')]
    history += [echo(call), tool("a file")]
    session.ask(history)
    before, after = (shown(name, ids) for ids in session.seen)
    assert "You may call tools." not in before
    result = after[len(before) :]
    assert result.index('"ls"') < result.index("a file")
    assert ("ipython<|end_header_id|>" in result) == (template.name == "llama")
    assert shown(name, template.open(history, TOOLS)).count('"command"') == after.count('"command"')
    assert "tool call" in template.check.exact
    assert session.tree.drift == {}


@pytest.mark.parametrize("name", ["smollm 2", "gemma 2", "gemma 3", "phi 3, first", "phi 3", "phi 4 mini"])
def test_families_without_tools_are_told_of_them_in_words(name):
    session, template = Session(MADE[name]), MADE[name]
    history = [system(), user("Go on.")]
    call = session.ask(history, called("I look.", ("bash", '{"command": "ls"}')))
    assert [(use.name, use.arguments) for use in call.parsed.tool_calls] == [("bash", '{"command": "ls"}')]
    history += [echo(call), tool("a file"), user("Hurry.")]
    session.ask(history)
    before, after = (shown(name, ids) for ids in session.seen)
    assert "You are an agent.\n\nYou may call tools." in before
    result = after[len(before) :]
    assert "<tool_response>\na file\n</tool_response>" in result
    assert result.index("</tool_response>") < result.index("Hurry.")
    assert shown(name, template.open(history, TOOLS)) == after
    assert session.tree.drift == {}


def test_tags_of_calls_and_thoughts_are_read_also_where_they_are_special_tokens():
    model = MODELS["qwen3"]
    tokenizer = model._replace(specials=(*model.specials, *model.words), words=()).tokenizer
    template = Sampled(tokenizer, 4096, choose(tokenizer).family)
    answer = called("<think>\nHm.\n</think>\n", ("bash", "{}"))
    said = template.parse(template.encode_answer(answer), TOOLS)
    assert (said.reasoning, said.text, len(said.tool_calls)) == ("Hm.", "", 1)


def test_smollm_2_as_it_is_published():
    """Its own tokenizer and template, as `ale model get` leaves them, show what the miniature shows."""
    model = named_models()["smollm2"]
    if not model.fetched:
        pytest.skip("SmolLM2's own tokenizer is NOT tested. Get it: ale model get smollm2")
    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    template = Sampled(tokenizer, 4096, choose(tokenizer).family)
    assert template.name == "smollm"
    assert "plain answer" in template.check.exact
    session = Session(template)
    history = [user("Go on.")]
    for turn in range(4):
        history += [echo(session.ask(history, f"it it {turn}", tools=())), user(f"And then {turn}?")]
    for tools in ((), TOOLS):
        assert tokenizer.decode(template.open(history, tools)) == shown(
            "smollm 2", MADE["smollm 2"].open(history, tools)
        )
    assert tokenizer.decode(session.seen[3]) == tokenizer.decode(template.open(history[:-2], ()))
    assert template.open(history[:-2], ()).tolist() != session.seen[3]
    assert session.tree.drift == {}
    session.check()
