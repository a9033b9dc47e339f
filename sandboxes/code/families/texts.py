"""Functions of a text."""

from __future__ import annotations

from random import Random

from sandboxes.code.problem import Arguments, Row, family

__all__ = ["FAMILIES", "WORDS"]

WORDS = [
    *("apple", "bee", "cloud", "dawn", "eel", "fig", "gate", "hill", "ice", "jam"),
    *("kite", "lamp", "moon", "nut", "oak", "pear", "quay", "rose", "sun", "tree"),
]


def _mixed(rng: Random) -> Arguments:
    """Words in either case, numbers and punctuation."""
    parts = []
    for _ in range(rng.randint(1, 5)):
        word = rng.choice(WORDS)
        word = rng.choice((word, word.upper(), word.title(), str(rng.randint(0, 120)), word * 2))
        parts.append(word + rng.choice(("", "", ",", ".", "!", "?")))
    return (" ".join(parts),)


def _small(rng: Random) -> Arguments:
    """Few letters, often in an order that means something."""
    half = "".join(rng.choices("abAc", k=rng.randint(1, 3)))
    return (
        rng.choice(
            (
                half + half[::-1],
                half + half[::-1].swapcase(),
                half * 2,
                half + half[-2::-1],
                "".join(sorted(half * 2)),
                "".join(rng.choices("aabbcA", k=rng.randint(1, 7))),
                half[0] * rng.randint(1, 5),
            )
        ),
    )


def _words(rng: Random) -> Arguments:
    """Lower-case words with single spaces, some of them twice."""
    few = rng.sample(WORDS, 4)
    return (" ".join(rng.choices(few, k=rng.randint(1, 6))),)


def _runs(rng: Random) -> Arguments:
    """Lower-case letters, often the same one several times."""
    return (
        "".join(rng.choice("abcdeimoruxyz") * rng.choice((1, 1, 1, 2, 3)) for _ in range(rng.randint(1, 6))),
    )


_COUNTS = (
    Row(
        "count_vowels",
        "how many vowels (a, e, i, o, u, in either case) text has",
        "sum(c in 'aeiouAEIOU' for c in text)",
    ),
    Row(
        "count_consonants",
        "how many letters of text are not a, e, i, o or u, in either case",
        "sum(c.isalpha() and c not in 'aeiouAEIOU' for c in text)",
    ),
    Row("count_digits", "how many digits text has", "sum(c.isdigit() for c in text)"),
    Row("count_upper", "how many capital letters text has", "sum(c.isupper() for c in text)"),
    Row("count_lower", "how many lower-case letters text has", "sum(c.islower() for c in text)"),
    Row("count_letters", "how many letters text has", "sum(c.isalpha() for c in text)"),
    Row("count_spaces", "how many spaces text has", "text.count(' ')"),
    Row("count_punctuation", "how many of the characters .,!? text has", "sum(c in '.,!?' for c in text)"),
    Row("count_different", "how many different characters text has", "len(set(text))"),
    Row(
        "count_doubles",
        "how many characters of text are equal to the one before",
        "sum(one == two for one, two in zip(text, text[1:]))",
    ),
    Row(
        "count_capitalised",
        "how many words of text, split at spaces, begin with a capital letter",
        "sum(word[0].isupper() for word in text.split())",
    ),
)

_CHECKS = (
    Row("is_palindrome", "whether text is the same read backwards", "text == text[::-1]"),
    Row(
        "is_palindrome_in_any_case",
        "whether text is the same read backwards, if capital letters count as lower-case ones",
        "text.lower() == text.lower()[::-1]",
    ),
    Row("has_no_repeats", "whether no character occurs twice in text", "len(set(text)) == len(text)"),
    Row(
        "is_ascending",
        "whether no character of text is smaller than the one before, as Python compares characters",
        "list(text) == sorted(text)",
    ),
    Row(
        "ends_as_it_begins",
        "whether the first and the last character of text are equal; True for an empty text",
        "text[:1] == text[-1:]",
    ),
    Row(
        "has_neighbours",
        "whether two equal characters stand side by side in text",
        "any(one == two for one, two in zip(text, text[1:]))",
    ),
    Row("has_even_length", "whether the number of characters of text is even", "len(text) % 2 == 0"),
    Row("has_as_many_a_as_b", "whether text has as many a as b", "text.count('a') == text.count('b')"),
    Row("is_twice_the_same", "whether text is one text twice in a row", "text == text[: len(text) // 2] * 2"),
    Row(
        "is_one_character",
        "whether all characters of text are equal; True for an empty text",
        "len(set(text)) <= 1",
    ),
    Row("has_capitals", "whether text has a capital letter", "text != text.lower()"),
)

_REWORDED = (
    Row("reverse_order", "the words of text in reverse order", "' '.join(text.split()[::-1])"),
    Row(
        "reverse_words",
        "text with each word spelled backwards",
        "' '.join(word[::-1] for word in text.split())",
    ),
    Row(
        "capitalise_words",
        "text with the first letter of each word as a capital",
        "' '.join(word[:1].upper() + word[1:] for word in text.split())",
    ),
    Row(
        "drop_vowels",
        "text without the letters a, e, i, o, u",
        "''.join(c for c in text if c not in 'aeiou')",
    ),
    Row(
        "first_letters", "the first letters of the words, joined", "''.join(word[0] for word in text.split())"
    ),
    Row(
        "last_letters", "the last letters of the words, joined", "''.join(word[-1] for word in text.split())"
    ),
    Row(
        "longest_word",
        "the longest word, the first of them if there are several, '' if there is none",
        "max(text.split(), key=len, default='')",
    ),
    Row(
        "shortest_word",
        "the shortest word, the first of them if there are several, '' if there is none",
        "min(text.split(), key=len, default='')",
    ),
    Row("sort_words", "the words in alphabetical order", "' '.join(sorted(text.split()))"),
    Row("unique_words", "the words without those that came before", "' '.join(dict.fromkeys(text.split()))"),
    Row("every_second_word", "the first word, the third and so on", "' '.join(text.split()[::2])"),
)

_SHIFT = """
letters = "abcdefghijklmnopqrstuvwxyz"
return "".join(letters[(letters.index(c) + {by}) % 26] for c in text)
"""
_RUNS = """
from itertools import groupby
return "".join({each} for c, run in groupby(text))
"""

_ENCODED = (
    *(
        Row(
            f"shift_by_{by}",
            f"text with each letter replaced by the one {by} places later in the alphabet; a follows z",
            _SHIFT.format(by=by),
        )
        for by in (2, 3, 13)
    ),
    Row(
        "mirror_alphabet",
        "text with a replaced by z, b by y and so on",
        "''.join(chr(ord('a') + ord('z') - ord(c)) for c in text)",
    ),
    Row("double_each", "text with each character twice", "''.join(c * 2 for c in text)"),
    Row("squeeze", "text with each run of equal characters replaced by one of them", _RUNS.format(each="c")),
    Row(
        "run_lengths",
        "each run of equal characters as the character and its number, such as a2b1 for aab",
        _RUNS.format(each="c + str(len(list(run)))"),
    ),
    Row(
        "alternate_case",
        "text with the first character, the third and so on as capitals",
        "''.join(c.upper() if place % 2 == 0 else c for place, c in enumerate(text))",
    ),
    Row(
        "swap_pairs",
        "text with first and second character, third and fourth and so on swapped; a last one without a partner stays",
        "''.join(text[place : place + 2][::-1] for place in range(0, len(text), 2))",
    ),
    Row(
        "hide_vowels",
        "text with each of a, e, i, o, u replaced by *",
        "''.join('*' if c in 'aeiou' else c for c in text)",
    ),
    Row("add_mirror", "text followed by text spelled backwards", "text + text[::-1]"),
    Row("with_dashes", "text with a dash between any two characters", "'-'.join(text)"),
)

_EDGES: tuple[Arguments, ...] = (("",), ("a",))
_SMALL_EDGES = tuple((text,) for text in ("", "a", "aA", "aab", "aba", "abab", "abca"))

FAMILIES = (
    family("count_characters", "(text: str) -> int", _mixed, (("",), ("Aa 1!",), ("EEL ee",)), _COUNTS),
    family("check_text", "(text: str) -> bool", _small, _SMALL_EDGES, _CHECKS),
    family("rewrite_words", "(text: str) -> str", _words, _EDGES, _REWORDED),
    family("encode_text", "(text: str) -> str", _runs, (*_EDGES, ("zzz",)), _ENCODED),
)
