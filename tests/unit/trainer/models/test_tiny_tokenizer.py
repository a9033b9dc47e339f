"""The tiny tokenizer is lossless, keeps grids one character per token and cannot be tricked into a special token."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.policy import Message
from rock_env.errors import InvalidArgument
from trainer.models.tiny.tokenizer import (
    ASSISTANT,
    DEFAULT_WORDS,
    END,
    PAD,
    SYSTEM,
    USER,
    TinyChatTemplate,
    TinyTokenizer,
)

TOKENIZER = TinyTokenizer()
TEMPLATE = TinyChatTemplate(TOKENIZER, 64)
TEXTS = st.text() | st.lists(st.sampled_from([*DEFAULT_WORDS, " ", "x", "\n", "#", "é", "<|end|>"])).map(
    "".join
)


@given(TEXTS)
def test_decode_inverts_encode(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(TEXTS)
def test_text_never_yields_a_special_token(text):
    assert not np.isin(TOKENIZER.encode(text), [PAD, SYSTEM, USER, ASSISTANT, END]).any()


@pytest.mark.parametrize("grid", ["P_O\n_OG\n", "#####\n#P√#\n#_X#\n", "OXPS"])
def test_a_grid_is_one_token_per_character(grid):
    assert len(TOKENIZER.encode(grid)) == len(grid)


@pytest.mark.parametrize("word", DEFAULT_WORDS)
def test_a_listed_word_is_one_token(word):
    assert len(TOKENIZER.encode(word)) == 1
    assert len(TOKENIZER.encode(f"go {word}!")) == 5


@pytest.mark.parametrize("text", ["upper", "cup", "LEFT", "leftright"])
def test_a_word_inside_letters_is_spelled_out(text):
    assert len(TOKENIZER.encode(text)) == len(text)


def test_the_ids_of_the_default_words_never_change():
    assert [int(TOKENIZER.encode(word)[0]) for word in ("left", "down", "right", "up", "√")] == [
        261,
        262,
        263,
        264,
        269,
    ]


def test_encoded_text_is_cached_and_cannot_be_written():
    ids = TOKENIZER.encode("up")
    assert TOKENIZER.encode("up") is ids
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_broken_utf8_decodes_to_the_replacement_character():
    assert TOKENIZER.decode(TOKENIZER.encode("é")[:1]) == "\ufffd"


def test_a_saved_tokenizer_brings_its_own_words(tmp_path):
    TinyTokenizer(("north", "south")).save(tmp_path / "t.json")
    again = TinyTokenizer.read(tmp_path / "t.json")
    assert again.words == ("north", "south")
    assert len(again.encode("south")) == 1


def test_pickling_keeps_the_words():
    assert len(pickle.loads(pickle.dumps(TinyTokenizer(("north",)))).encode("north")) == 1


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": "other", "words": []}', b"[1]"])
def test_a_damaged_tokenizer_file_is_one_clear_error(tmp_path, content):
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(InvalidArgument, match="Export the model"):
        TinyTokenizer.read(tmp_path / "t.json")


@pytest.mark.parametrize("words", [("a", "a"), ("",)])
def test_words_that_would_be_ambiguous_are_refused(words):
    with pytest.raises(InvalidArgument, match="distinct"):
        TinyTokenizer(words)


@given(st.text(), st.text(), st.text())
def test_extending_equals_rendering_the_whole_conversation(first, action, second):
    opened = TEMPLATE.open([Message("user", first)])
    action_ids = TEMPLATE.encode_completion(action)
    more = TEMPLATE.extend([Message("user", second)], closed=True)
    whole = TEMPLATE.open([Message("user", first), Message("assistant", action), Message("user", second)])
    assert np.concatenate((opened, action_ids, more)).tolist() == whole.tolist()


def test_extending_an_unfinished_completion_closes_it():
    closed = TEMPLATE.extend([Message("user", "x")], closed=True)
    assert TEMPLATE.extend([Message("user", "x")], closed=False).tolist() == [END, *closed.tolist()]


def test_a_prompt_shows_the_observation_and_no_instruction():
    prompt = TEMPLATE.open([Message("system", "Reach the goal."), Message("user", "PG")])
    assert prompt[0] == USER
    assert prompt[-1] == ASSISTANT
    assert TEMPLATE.decode(prompt) == "PG"


def test_a_completion_ends_and_decodes_without_its_end():
    ids = TEMPLATE.encode_completion("up")
    assert ids[-1] == END
    assert TEMPLATE.decode(ids) == "up"
