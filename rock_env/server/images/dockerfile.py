"""What a Dockerfile asks of the engine besides its context, so that the registry can say whether a tenant may.

Used by `server/images/context` and, for the triggers of base images, by the registry. It reads instructions as the engine's
classic builder does, and refuses what the releases of that builder read differently: an image that is not told for certain
is one that nobody checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument

__all__ = ["MAX_DOCKERFILE_BYTES", "MOST_IMAGES", "Needs", "needs_of", "needs_of_triggers"]

MAX_DOCKERFILE_BYTES = 1 << 20
MOST_IMAGES = 100
"""How many images one Dockerfile may name: the engine is asked about each."""
_MOST_CHARS = 512
"""Of an image's name, and of a value that makes one."""
_TRIGGERS = frozenset(
    {
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL"),
        *("RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    }
)
_KNOWN = _TRIGGERS | {"FROM", "MAINTAINER", "ONBUILD"}
_BLANK = re.compile(r"[\t ]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_DIRECTIVE = re.compile(r"#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*")
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?[^<\s]")
_BRACES = re.compile(r"\$\{|\}|<")
_ARG = r"""([A-Za-z_][A-Za-z0-9_]*)(?:=("[^"\\`]*"|'[^'\\`]*'|[^\s"'\\`]*))?"""
_ARGS = re.compile(rf"{_ARG}(?:[ \t]+{_ARG})*")
_ONE_ARG = re.compile(_ARG)
_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([A-Za-z0-9._/:@-]+))?\})"
)
_PLAIN = re.compile(r"[A-Za-z0-9._/:@-]+")
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?:=([!#-&(-\[\]-_a-~]*))?")
"""Of printable ASCII without quotes and escapes: the builder reads flags by bytes."""
_STAGE = re.compile(r"[a-z][a-z0-9_.-]*")
_INDEX = re.compile(r"[0-9]{1,9}")
_QUOTED = re.compile(r"[$\"'\\`]")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a Dockerfile asks of the engine."""

    images: frozenset[str] = frozenset()
    """Names and ids in `FROM` and `COPY --from`, those of its own stages left out."""
    platforms: frozenset[str] = frozenset()
    """What its `FROM --platform` say."""
    downloads: frozenset[str] = frozenset()
    """The sources of its `ADD` that are addresses, or may become some; each shortened for a message."""


def needs_of(text: str, build_args: Mapping[str, str]) -> Needs:
    """Return what a Dockerfile needs. Raise `InvalidArgument` where an image cannot be told for certain."""
    control = _CONTROL.search(text.replace("\r\n", "\n").removesuffix("\r"))
    if control is not None:
        line = text.replace("\r\n", "\n")[: control.start()].count("\n") + 1
        raise InvalidArgument(
            f"the Dockerfile holds the control character {control[0]!r} in line {line}, which releases of the builder read "
            "differently. Take it out; tabs and line ends may stay."
        )
    built, unknown = [], ""
    # Within an instruction an indented comment is one to some releases of the builder, and text to others.
    for indented in (True, False):
        found = _Reader(build_args)
        for instruction in _instructions(text, indented_comments=indented):
            name = _split(instruction)[0]
            if name not in _KNOWN:  # who reads it so builds nothing
                unknown = unknown or name
                break
            found.take(instruction)
        else:
            built.append(found)
    if not built:
        raise InvalidArgument(
            f"the Dockerfile has the unknown instruction {shown(unknown)}. There are: {' '.join(sorted(_KNOWN))}."
        )
    return _joined(built)


def needs_of_triggers(triggers: Iterable[str]) -> Needs:
    """Return what the `ONBUILD` triggers of a base image need. Raise `InvalidArgument` as `needs_of` does."""
    found = _Reader({})
    for trigger in triggers:
        if _CONTROL.search(trigger) or "\n" in trigger:
            raise _unclear(trigger, "it is more than one line")
        found.take(f"ONBUILD {trigger}")
    return _joined([found])


def _joined(found: list[_Reader]) -> Needs:
    images = frozenset().union(*(reader.named for reader in found))
    if len(images) > MOST_IMAGES:
        raise InvalidArgument(f"the Dockerfile names {len(images)} images, expected at most {MOST_IMAGES}.")
    return Needs(
        images,
        frozenset().union(*(reader.platforms for reader in found)),
        frozenset().union(*(reader.downloads for reader in found)),
    )


def _instructions(text: str, *, indented_comments: bool) -> Iterator[str]:
    """Yield each instruction as one line, as the builder joins them."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    escape = _escape(lines)
    begun: list[str] = []
    goes_on = False
    for line in lines:
        comment = (line.lstrip() if indented_comments or not goes_on else line).startswith("#")
        if comment or not line.strip():
            continue
        kept = line.rstrip(" \t")
        goes_on = kept.endswith(escape)
        if kept.endswith(escape * 2):
            raise _unclear(line, "whether the next line goes on with it")
        begun.append(kept.removesuffix(escape) if goes_on else line)
        if not goes_on:
            yield "".join(begun).strip()
            begun = []
    if begun:
        yield "".join(begun).strip()


def _escape(lines: list[str]) -> str:
    """Return what continues a line, which the first line may choose."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("#"):
            break
        key, said, _ = line.lstrip().removeprefix("#").partition("=")
        if said and key.strip().lower() == "escape":
            found = _DIRECTIVE.fullmatch(line)
            if number or found is None:
                raise _unclear(line, "expected `escape` in the first line, and a backslash or a backtick")
            return found[1]
    return "\\"


class _Reader:
    def __init__(self, build_args: Mapping[str, str]) -> None:
        self.named: set[str] = set()
        self.platforms: set[str] = set()
        self.downloads: set[str] = set()
        self._build_args = build_args
        self._stages: list[str] = []
        """Their names in lower case, empty for those without one; the last one is being built."""
        self._args: dict[str, str | None] = {}
        """Those before the first stage that have a value, None where it is not plain."""
        self._lost = False
        """Whether an ARG could not be read: who knows which it set."""

    def take(self, instruction: str) -> None:
        """Note what an instruction names."""
        name, rest = _split(instruction)
        later = name == "ONBUILD"
        if later:
            name, rest = _split(rest)
            if name not in _TRIGGERS:  # the builder keeps it unread, and strips what hides it when it is done
                raise _unclear(instruction, f"{shown(name)} is nothing that ONBUILD may do")
        if name == "RUN" and rest.startswith("--"):
            raise InvalidArgument(
                f"the Dockerfile has {shown(instruction)}: only BuildKit knows options of RUN, and the builder here is the "
                "engine's classic one. Leave the option out; a cache mount changes nothing but how long a build takes."
            )
        if name in ("RUN", "COPY", "ADD") and _has_heredoc(rest):
            raise InvalidArgument(
                f"the Dockerfile has a here-document, which this builder has not, in {shown(instruction)}. Write the file "
                "beside the Dockerfile and COPY it, or write it with printf."
            )
        if name == "ARG" and not self._stages:
            self._arg(rest)
        elif name == "FROM":
            self._stage(instruction, rest)
        elif name in ("COPY", "ADD"):
            self._copied(instruction, rest, later=later)
            if name == "ADD":
                self.downloads.update(_downloads(rest))

    def _arg(self, rest: str) -> None:
        if not _ARGS.fullmatch(rest):
            self._args.clear()
            self._lost = True
            return
        args = list(_ONE_ARG.finditer(rest))
        for found in args:
            name, value = found[1], found[2]
            if name in self._build_args:
                value = self._build_args[name]
            elif value and "$" in value:
                # What is set in the same line is not seen there, and nothing is within single quotes.
                value = self._expanded(value) if len(args) == 1 and value[0] != "'" else ""
            elif value and value[0] in "\"'":
                value = value[1:-1]
            if value is None:
                self._args.pop(name, None)
            else:
                plain = len(value) <= _MOST_CHARS and _PLAIN.fullmatch(value)
                self._args[name] = value if plain else None

    def _expanded(self, value: str) -> str:
        """Return a default with what it refers to filled in; empty where that is not plain."""
        try:
            return self._filled("ARG", value.strip('"'))
        except InvalidArgument:
            return ""

    def _stage(self, instruction: str, rest: str) -> None:
        words = _words(instruction, rest)
        while words and words[0].startswith("--"):
            flag, said, platform = words.pop(0).partition("=")
            if flag != "--platform" or not said:
                raise _unclear(instruction, "its flags")
            self.platforms.add(self._filled(instruction, platform))
        if len(words) not in (1, 3):
            raise _unclear(instruction, "expected `FROM IMAGE` or `FROM IMAGE AS NAME`")
        image = self._filled(instruction, words[0])
        if image.lower() not in self._stages and image != "scratch":
            self.named.add(image)
        stage = words[2].lower() if len(words) == 3 else ""
        if stage and not _STAGE.fullmatch(stage):
            raise _unclear(
                instruction, "a stage's name has letters, digits, '-', '_' and '.', a letter first"
            )
        self._stages.append(stage)

    def _filled(self, instruction: str, word: str) -> str:
        def value(found: re.Match[str]) -> str:
            name, default = found[1] or found[2], found[3]
            known = self._args.get(name)
            if name not in self._args and name not in self._build_args and not self._lost:
                known = default
            if known is None or not _PLAIN.fullmatch(known):
                raise _unclear(
                    instruction, f"no ARG before the first FROM gives ${shown(name)} a plain value"
                )
            return known

        filled = _VARIABLE.sub(value, word) if len(word) <= _MOST_CHARS else word
        if len(filled) > _MOST_CHARS or not _PLAIN.fullmatch(filled):
            raise _unclear(instruction, f"it names {shown(filled)}")
        return filled

    def _copied(self, instruction: str, rest: str, *, later: bool) -> None:
        """`later`: it is done in builds upon this one, whose stages are others."""
        if not rest.startswith("--"):
            return
        for word in _words(instruction, rest):
            if not word.startswith("--"):
                return
            found = _FLAG.fullmatch(word)
            if found is None:
                raise _unclear(instruction, "its flags")
            if found[1] != "from":
                continue
            source = found[2] or ""
            if len(source) > _MOST_CHARS or not _PLAIN.fullmatch(source):
                raise _unclear(instruction, "its flags")
            if not self._is_stage(source, later=later):
                self.named.add(source)

    def _is_stage(self, source: str, *, later: bool) -> bool:
        if _INDEX.fullmatch(source):  # never an image to the builder
            return True
        return not later and source.lower() in self._stages[:-1]


def _split(instruction: str) -> tuple[str, str]:
    word, *rest = _BLANK.split(instruction.strip(), maxsplit=1)
    return word.upper() if word.isascii() else word, rest[0] if rest else ""


def _words(instruction: str, rest: str) -> list[str]:
    """Return the words of a line in which nothing but spaces and tabs divides them."""
    if any(char.isspace() and char not in " \t" for char in rest):
        raise _unclear(instruction, "it has blanks that are neither spaces nor tabs")
    return rest.split()


def _has_heredoc(rest: str) -> bool:
    """Return whether a builder may find a here-document: a word that begins with `<<`, once variables are filled in."""
    if "<" not in rest:
        return False
    if _HEREDOC.search(rest):
        return True
    depth = 0
    for found in _BRACES.finditer(rest) if "${" in rest else ():
        if found[0] == "<":
            around = rest[max(found.start() - 1, 0) : found.end() + 2]
            if depth or around.startswith("}") or around.endswith("<${"):
                return True
        else:
            depth = max(0, depth + (1 if found[0] == "${" else -1))
    return False


def _downloads(rest: str) -> Iterator[str]:
    """Yield the sources of an ADD that are addresses to the builder, or may become some."""
    words = [word for word in rest.split() if not word.startswith("--")]
    listed = rest[rest.find("[") :] if words and words[0].startswith("[") else ""
    if listed:
        try:
            words = json.JSONDecoder().raw_decode(listed)[0]
        except (ValueError, RecursionError):
            words = []
        if not words or not all(isinstance(word, str) for word in words):
            if re.search(r"http|[\\$]", listed, re.IGNORECASE):
                yield shown(listed)
            return
    for word in words[:-1]:
        plain = _QUOTED.split(word, maxsplit=1)[0]
        schemes = ("http://", "https://")
        if plain.startswith(schemes) or (plain != word and any(url.startswith(plain) for url in schemes)):
            yield shown(word)


def _unclear(line: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"which images the Dockerfile needs cannot be told: {why}, in {shown(line)}. Write the image's name, or an ARG with "
        "a plain value before the first FROM."
    )
