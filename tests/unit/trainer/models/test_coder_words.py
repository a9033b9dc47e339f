"""The coder's tokenizer: lossless, no special tokens from text, one way for a word wherever it stands."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rock_env.errors import InvalidArgument
from trainer.models.coder.words import SPECIALS, CoderWords

WORDS = CoderWords.built_in()
CODE = 'def f(a, b=None):\n    if a <= b ** 2:\n        return [a // 3, "x  y"]\n\n\t# tests/test_f.py:12: é ____ \n'


@given(st.one_of(st.text(), st.text(alphabet=" \n\tab_1./=<>-*é")))
@settings(max_examples=300)
def test_every_text_comes_back(text):
    ids = WORDS.encode(text)
    assert WORDS.decode(ids) == text
    assert (ids >= SPECIALS).all()
    assert (ids < WORDS.size).all()


def test_code_is_short_and_comes_back():
    ids = WORDS.encode(CODE)
    assert WORDS.decode(ids) == CODE
    assert len(ids) < 0.6 * len(CODE)


def test_a_word_with_a_space_before_it_has_the_same_piece():
    alone, spaced = WORDS.encode("return"), WORDS.encode(" return")
    assert len(alone) == len(spaced) == 1
    assert WORDS.piece_V[alone[0]] == WORDS.piece_V[spaced[0]]
    assert WORDS.unspaced(spaced).tolist() == alone.tolist()


def test_only_the_first_piece_of_a_word_begins_one():
    ids = WORDS.encode("zqxjkv tests/test_f.py")
    assert WORDS.is_start(ids).sum() == 2
    assert [WORDS.decode(ids[first:beyond]) for first, beyond in WORDS.words(ids)] == [
        "zqxjkv",
        " tests/test_f.py",
    ]


def test_a_saved_tokenizer_is_the_same_and_a_foreign_file_is_refused(tmp_path):
    WORDS.save(tmp_path / "words")
    again = CoderWords.read(tmp_path / "words")
    assert again.encode(CODE).tolist() == WORDS.encode(CODE).tolist()
    (tmp_path / "words").write_text("[]")
    with pytest.raises(InvalidArgument, match="Export the model again"):
        CoderWords.read(tmp_path / "words")


def test_pieces_must_be_distinct():
    with pytest.raises(InvalidArgument, match="distinct"):
        CoderWords(("a", "a"))


def test_ids_are_read_only():
    ids = WORDS.encode("shared by many prompts")
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = np.int32(0)
