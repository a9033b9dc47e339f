"""Which images a Dockerfile builds upon or copies from, so that the registry can say whether a tenant may.

Used by `server/images/context`. It reads instructions as the engine's classic builder does, and refuses what the releases of
that builder read differently: an image that is not told for certain is one that nobody checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument

__all__ = ["MAX_DOCKERFILE_BYTES", "images_named"]

MAX_DOCKERFILE_BYTES = 1 << 20
_BLANK = re.compile(r"[\t\v\f\r ]+")
"""What divides an instruction from the rest of its line, to the builder."""
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?[^<\s]")
_ARG = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_PLAIN = re.compile(r"[A-Za-z0-9._/:@-]+")
_FLAG = re.compile(r"--[a-z]+=[A-Za-z0-9._/:@-]+")
_INDEX = re.compile(r"[0-9]{1,9}")


def images_named(text: str, build_args: Mapping[str, str]) -> frozenset[str]:
    """Return the names and ids of images that `FROM` and `COPY --from` ask of the engine, those of its own stages left out.

    Raise `InvalidArgument` where an image cannot be told for certain.
    """
    named: set[str] = set()
    # Within an instruction an indented comment is one to some releases of the builder, and text to others.
    for indented in (True, False):
        found = _Images(build_args)
        for instruction in _instructions(text, indented_comments=indented):
            found.take(instruction)
        named |= found.named
    return frozenset(named)


def _instructions(text: str, *, indented_comments: bool) -> Iterator[str]:
    """Yield each instruction as one line, as the builder joins them."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    escape = _escape(lines)
    begun, goes_on = "", False
    for line in lines:
        comment = (line.lstrip() if indented_comments or not goes_on else line).startswith("#")
        if comment or not line.strip():
            continue
        kept = line.rstrip(" \t")
        goes_on = kept.endswith(escape)
        if kept.endswith(escape * 2):
            raise _unclear(line, "whether the next line goes on with it")
        begun += kept.removesuffix(escape) if goes_on else line
        if not goes_on:
            yield begun.strip()
            begun = ""
    yield begun.strip()


def _escape(lines: list[str]) -> str:
    """Return what continues a line, which the first line may choose."""
    for number, line in enumerate(lines):
        found = _DIRECTIVE.fullmatch(line.strip())
        if found is None:
            break
        if found[1].lower() == "escape":
            if number or found[1] != "escape" or found[2] not in ("\\", "`"):
                raise _unclear(line, "expected `escape` in the first line, and a backslash or a backtick")
            return found[2]
    return "\\"


class _Images:
    def __init__(self, build_args: Mapping[str, str]) -> None:
        self.named: set[str] = set()
        self._build_args = build_args
        self._stages: list[str] = []
        """Their names in lower case, empty for those without one; the last one is being built."""
        self._args: dict[str, str] = {}
        """Those before the first stage whose value is plain."""

    def take(self, instruction: str) -> None:
        """Note what an instruction names."""
        later = False
        name, rest = _split(instruction)
        while name == "ONBUILD":
            later = True
            name, rest = _split(rest)
        if name in ("RUN", "COPY", "ADD") and _HEREDOC.search(rest):
            raise _unclear(instruction, "a here-document, which this builder has not")
        if name == "ARG" and not self._stages:
            self._arg(rest)
        elif name == "FROM":
            self._stage(instruction, rest)
        elif name in ("COPY", "ADD"):
            self._copied(instruction, rest, later=later)

    def _arg(self, rest: str) -> None:
        for word in rest.split():
            found = _ARG.fullmatch(word)
            if found is None:
                self._args.clear()  # who knows which it sets
                continue
            value = self._build_args.get(found[1], found[2])
            if value and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            self._args.pop(found[1], None)
            if value and _PLAIN.fullmatch(value):
                self._args[found[1]] = value

    def _stage(self, instruction: str, rest: str) -> None:
        words = _words(instruction, rest)
        while words and words[0].startswith("--"):
            if not _FLAG.fullmatch(words.pop(0)):
                raise _unclear(instruction, "its flags")
        if len(words) not in (1, 3):
            raise _unclear(instruction, "expected `FROM IMAGE` or `FROM IMAGE AS NAME`")
        image = self._filled(instruction, words[0])
        if image.lower() not in self._stages and image != "scratch":
            self.named.add(image)
        self._stages.append(words[2].lower() if len(words) == 3 else "")

    def _filled(self, instruction: str, word: str) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name not in self._args:
                raise _unclear(
                    instruction, f"no ARG before the first FROM gives ${shown(name)} a plain value"
                )
            return self._args[name]

        filled = _VARIABLE.sub(value, word)
        if not _PLAIN.fullmatch(filled):
            raise _unclear(instruction, f"its image is {shown(filled)}")
        return filled

    def _copied(self, instruction: str, rest: str, *, later: bool) -> None:
        """`later`: it is done in builds upon this one, whose stages are others."""
        if not rest.startswith("--"):
            return
        for word in _words(instruction, rest):
            if not word.startswith("--"):
                return
            if not _FLAG.fullmatch(word):
                raise _unclear(instruction, "its flags")
            flag, _, source = word.partition("=")
            if flag == "--from" and not self._is_stage(source, later=later):
                self.named.add(source)

    def _is_stage(self, source: str, *, later: bool) -> bool:
        if _INDEX.fullmatch(source):  # never an image to the builder
            return True
        return not later and source.lower() in self._stages[:-1]


def _split(instruction: str) -> tuple[str, str]:
    word, *rest = _BLANK.split(instruction.strip(), maxsplit=1)
    return word.upper(), rest[0] if rest else ""


def _words(instruction: str, rest: str) -> list[str]:
    """Return the words of a line in which nothing but spaces and tabs divides them."""
    if any((char.isspace() and char not in " \t") or ord(char) < 32 for char in rest.replace("\t", " ")):
        raise _unclear(instruction, "it has blanks that are neither spaces nor tabs")
    return rest.split()


def _unclear(line: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"which images the Dockerfile needs cannot be told: {why}, in {shown(line)}. Write the image's name, or an ARG with "
        "a plain value before the first FROM."
    )
