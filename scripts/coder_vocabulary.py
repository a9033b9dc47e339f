"""Learn the pieces of the coder's tokenizer: words and parts of words that several texts share.

    python scripts/coder_vocabulary.py [--check]

Texts are the packages that `swe` trains on (never the unseen ones), short functions of the standard library of Python 3.11,
and what the tools and pytest say. Writes `trainer/models/coder/vocabulary.json`; `--check` exits with 1 where that file
would change. The base weights belong to the vocabulary: train them again after a change.
"""

from __future__ import annotations

import argparse
import json
import keyword
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from coder_pretrain import corpus

from sandboxes.swe import factory
from trainer.models.coder.words import parts_of, words_of

VOCABULARY = Path(__file__).parents[1] / "trainer" / "engine" / "coder" / "vocabulary.json"
SHARED_PACKAGES, SHARED_MODULES = 2, 25
RUNS = "=_!.^~*- "
"""Characters that come in rows, as in pytest's rulers."""
SAID = """
You are in the project folder /workspace/x. Its files: README.md x/__init__.py tests/test_x.py The bug report: returns
it should be raises instead of raised nothing expected [exit code 1] [exit code 0] [timed out after s and was killed]
Killed [failed] [not run] Edited x/y.py: lines 1-2. removed lines Undone: is as before that edit. (lines 1-2 of 3)
Submitted. no such file matches FAILURES ERRORS passed failed in AssertionError: assert E where and not error during
collection stopping after failures ValueError KeyError IndexError TypeError ZeroDivisionError NameError AttributeError
UnboundLocalError RecursionError StopIteration DID NOT RAISE object is not subscriptable unsupported operand type(s)
for takes positional arguments but was were given local variable referenced before assignment list index out of range
NoneType has no attribute At index diff True False None
"""


def shared(texts: Iterable[Iterable[str]], least: int) -> set[str]:
    """Return what occurs in at least so many of the texts."""
    counts = Counter(word for words in texts for word in set(words))
    return {word for word, count in counts.items() if count >= least}


def told(text: str) -> Iterator[str]:
    """Yield the words of a text and their parts."""
    for word in words_of(text):
        if "/" in word and len(word) > 1:
            continue  # a path: its parts count
        yield word
        yield from parts_of(word)


def learn() -> list[str]:
    """Return the pieces."""
    packages = sorted({task.package for task in factory.read_index().tasks if task.split == "train"})
    projects = [
        "\n".join(content.decode() for path, content in factory.package_files(name) if path.endswith(".py"))
        for name in packages
    ]
    modules = ["\n".join(source for _, source in functions) for functions in corpus()]
    pieces = shared(map(told, projects), SHARED_PACKAGES) | shared(map(told, modules), SHARED_MODULES)
    pieces |= {*told(SAID), *keyword.kwlist, ".py", "test_", "__init__"}
    pieces |= {character * count for character in RUNS for count in (2, 3, 4, 8, 16, 32)}
    return sorted(piece for piece in pieces if len(piece) > 1)


def main() -> None:
    """Learn and write, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="only say whether the file is what would be learned"
    )
    options = parser.parse_args()
    text = json.dumps(learn(), ensure_ascii=False, indent=0) + "\n"
    if options.check:
        sys.exit(VOCABULARY.read_text() != text)
    VOCABULARY.write_text(text)
    print(f"{text.count(chr(10)) - 2} pieces in {VOCABULARY}")


if __name__ == "__main__":
    main()
