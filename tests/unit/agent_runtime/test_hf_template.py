"""`HFChatTemplate` on a real fast tokenizer, trained here on a few sentences; nothing is downloaded."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.policy import Message
from agent_runtime.render import HFChatTemplate

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_LIKE = (
    "<|begin|>{% for message in messages %}[{{ message.role }}]{{ message.content | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
CORPUS = [
    "go up and then left",
    "the hole is below you, \n\n go right",
    "assistant user system you see P _ O G",
]


def a_tokenizer(chat_template: str):
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|begin|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(CORPUS, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>")
    tokenizer.chat_template = chat_template
    return tokenizer


TOKENIZERS = {"chatml": a_tokenizer(CHATML), "llama_like": a_tokenizer(LLAMA_LIKE)}
texts = st.text(alphabet="ab \nPOG_é猫<|>", max_size=20).map(str.strip).filter(bool)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60)
@given(system=st.none() | texts, turns=st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
def test_extending_equals_rendering_the_whole_conversation(name, system, turns):
    tokenizer = TOKENIZERS[name]
    template = HFChatTemplate(tokenizer, 1000)
    messages = [] if system is None else [Message("system", system)]
    messages.append(Message("user", turns[0][0]))
    ids = template.open(messages)
    for index, (_, answer) in enumerate(turns):
        ids = np.concatenate([ids, template.encode_completion(answer)])
        messages.append(Message("assistant", answer))
        if index + 1 < len(turns):
            following = Message("user", turns[index + 1][0])
            ids = np.concatenate([ids, template.extend([following], closed=True)])
            messages.append(following)
    text = tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in messages], tokenize=False
    )
    whole = tokenizer.encode(text, add_special_tokens=False)
    assert ids.tolist() == whole[: len(ids)]
    assert (
        tokenizer.decode(whole[len(ids) :]).strip() == ""
    )  # what a template writes after the last end token


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_unclosed_answer_is_closed_by_the_extension(name):
    template = HFChatTemplate(TOKENIZERS[name], 1000)
    closed = template.extend([Message("user", "x")], closed=True)
    unclosed = template.extend([Message("user", "x")], closed=False)
    assert unclosed.tolist() == [template.end_id, *closed.tolist()]
    assert closed.dtype == np.int32


@given(text=texts)
@settings(max_examples=60)
def test_decoding_an_encoded_answer_gives_its_text_back(text):
    template = HFChatTemplate(TOKENIZERS["chatml"], 1000)
    ids = template.encode_completion(text)
    assert ids[-1] == template.end_id
    assert template.decode(ids) == text


def test_a_message_that_looks_like_the_sentinel_is_kept_whole():
    template = HFChatTemplate(TOKENIZERS["chatml"], 1000)
    tricky = "answer-7f3a9c51e2 again"
    ids = template.extend([Message("user", tricky)], closed=True)
    assert tricky in TOKENIZERS["chatml"].decode(ids.tolist())


@pytest.mark.parametrize(
    ("chat_template", "complaint"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "without a special token"),
        ("{% for m in messages %}{{ m.role }}: {{ m.content | upper }}<|im_end|>{% endfor %}", "as it is"),
    ],
)
def test_a_template_that_cannot_be_extended_is_refused(chat_template, complaint):
    with pytest.raises(ValueError, match=complaint):
        HFChatTemplate(a_tokenizer(chat_template), 1000)


def test_importing_the_runtime_imports_no_model_library():
    code = (
        "import sys, agent_runtime.run, agent_runtime.render, agent_runtime.replay, agent_runtime.store;"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'ray') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
