"""The README's next steps run one after the other: no two want one folder, and what a step reads a step before it made."""

from __future__ import annotations

import ast
import re

import pytest
from commands import commands_of, parse
from pages import ROOT, blocks, prose

from ale.training import runs
from trainer.config import TrainConfig

README = ROOT / "README.md"


def run_of(given: dict[str, object]) -> str:
    config = TrainConfig.model_validate(
        {name: given[name] for name in ("env", "algo", "seed") if given.get(name) is not None}
    )
    return str(given.get("run") or runs.default_name(config))


def test_the_next_steps_do_not_collide() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    first = re.search(r"^\t\$\(BIN\)/ale (train .*) \$\(ARGS\)$", makefile, re.MULTILINE)
    assert first
    made = {run_of(parse(first[1].split()))}
    steps = [words for block in blocks(README) if block.language == "sh" for words in commands_of(block.text)]
    trained = 0
    for words in steps:
        if words[0] != "ale":
            continue
        given = parse(words[1:])
        if words[1] == "train":
            run = run_of(given)
            assert run not in made, f"{' '.join(words)} wants the folder of a step before it"
            made.add(run)
            trained += 1
        named = given.get("model") if words[1] == "eval" else given.get("where")
        assert named is None or named in made, (
            f"{' '.join(words)} reads {named}, which no step before it makes"
        )
    assert trained >= 3


def test_the_words_of_the_trade_are_introduced() -> None:
    """The first time that a reader meets such a word, it is set apart and said what it is."""
    text = prose(README)
    for word, introduction in {
        "turn": "each *turn*",
        "rollout": "is a *rollout*",
        "trajectory": "is a *trajectory*",
        "ROCK": "**ROCK** (`rock_env`) is",
        "IPA": "**IPA** (Interactive",
        "anchor": "is an *anchor*",
        "GEM": "interface of GEM (",
    }.items():
        found = re.search(rf"(?<![\w-]){word}(?![\w-])", text)
        assert found, word
        assert introduction in text, word
        assert found.start() >= text.index(introduction), f"{word} is used before it is introduced"


@pytest.mark.parametrize("block", [block for block in blocks(README) if block.language == "python"])
def test_its_python_is_python(block: object) -> None:
    ast.parse(block.text)  # type: ignore[attr-defined]
