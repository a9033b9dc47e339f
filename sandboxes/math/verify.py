r"""What an answer says, as exact numbers: tolerant of format, never of value.

Pure and total: any text is either read or refused with a sentence that says why. Read is, in this order, the last
`\boxed{...}`, the last `<answer>...</answer>`, or the last line that is not empty; whatever stands before is the answerer's
own working. Of several values the last stands, so listing many gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["NotAnAnswer", "read_answer", "render"]

MAX_CHARS = 4000
"""Of the end of a text; an answer is at the end, and reading must stay cheap whatever is sent."""
_SHOWN_CHARS = 60
_DIGITS = r"[0-9]{1,40}"
"""More digits than any answer has, and few enough to be turned into a number at once."""
_NUMBER = (
    rf"[+-]?\s*(?:\\frac\s*{{\s*[+-]?{_DIGITS}\s*}}\s*{{\s*[+-]?{_DIGITS}\s*}}"
    rf"|[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,12}}|{_DIGITS}\s*/\s*{_DIGITS}|{_DIGITS}\.[0-9]{{0,40}}|\.{_DIGITS}|{_DIGITS})"
)
_ALONE = re.compile(_NUMBER)
_FRACTION = re.compile(rf"\\frac\s*{{\s*([+-]?{_DIGITS})\s*}}\s*{{\s*([+-]?{_DIGITS})\s*}}")
_JOIN = r"\s*(?:[,;]\s*(?:and\s+)?|\s+and\s+)"
_BOXED = "\\boxed{"
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_INTRODUCTION = re.compile(r"^.{0,80}?\banswer(?:\s+is)?\s*:?\s*(?=[\\$(+.\-0-9a-z])", re.IGNORECASE)
_DECORATION = re.compile(r"\$|\\[()\[\],;!]|\\left|\\right|\*\*|`")


class NotAnAnswer(ValueError):
    """The text says no answer of the kind asked for; the message says what was expected and what came."""


def read_answer(text: str, names: Sequence[str] = ()) -> tuple[Fraction, ...]:
    """Return the values that `text` gives for the unknowns `names`, or its one value. Raise `NotAnAnswer`."""
    part = _plain(_final_part(text[-MAX_CHARS:]))
    if len(names) > 1:
        return _several(part, names)
    value = part
    if "=" in part:
        left, _, value = part.rpartition("=")
        if names and left.strip().lower() != names[0]:
            raise _refused(part, names)
    return (_number(value, part, names),)


def render(values: Sequence[Fraction], names: Sequence[str] = ()) -> str:
    """Return values as an answer that `read_answer` reads."""
    if len(names) > 1:
        return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    return ", ".join(str(value) for value in values)


def _final_part(text: str) -> str:
    at = text.rfind(_BOXED)
    if at >= 0:
        return _braced(text[at + len(_BOXED) :])
    if tagged := _TAGGED.findall(text):
        return str(tagged[-1])
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _braced(text: str) -> str:
    """Return what stands before the brace that closes."""
    depth = 1
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return text[:at]
    raise NotAnAnswer(f"No answer: its \\boxed{{ is never closed, got {_shown(text)}.")


def _plain(part: str) -> str:
    """Return the part without mathematical typesetting, emphasis, an introduction and a full stop."""
    part = part.replace("−", "-").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    part = _DECORATION.sub("", part).strip()
    part = _INTRODUCTION.sub("", part)
    return part[:-1].rstrip() if part.endswith(".") else part


def _several(part: str, names: Sequence[str]) -> tuple[Fraction, ...]:
    """Read `x = 1, y = 2` in any order, or `(1, 2)` and `1, 2` in the order of `names`."""
    bare = part[1:-1] if part.startswith("(") and part.endswith(")") else part
    # Runs of spaces would cost the pattern below the cube of their length.
    values = [field.strip() for field in re.split(_JOIN, " ".join(bare.split()))]
    if len(values) == len(names):
        named = [field.split("=", 1) for field in values if "=" in field]
        if not named:
            return tuple(_number(value, part, names) for value in values)
        by_name = {name.strip().lower(): value for name, value in named}
        if by_name.keys() == set(names):
            return tuple(_number(by_name[name], part, names) for name in names)
    raise _refused(part, names)


def _number(value: str, part: str, names: Sequence[str]) -> Fraction:
    value = value.strip()
    if _ALONE.fullmatch(value) is None:
        raise _refused(part, names)
    sign = -1 if value[0] == "-" else 1
    value = value.lstrip("+-").replace(",", "")
    try:
        if fraction := _FRACTION.fullmatch(value.strip()):
            return sign * Fraction(int(fraction[1]), int(fraction[2]))
        return sign * Fraction(re.sub(r"\s", "", value))
    except ZeroDivisionError:
        raise NotAnAnswer(f"No answer: {_shown(part)} divides by zero.") from None


def _refused(part: str, names: Sequence[str]) -> NotAnAnswer:
    if len(names) > 1:
        wanted = f"values for {' and '.join(names)}, such as {render([Fraction(2), Fraction(-3)], names)}"
    else:
        wanted = "one number, such as 42, -7, 3/4 or 0.5" + (f", or {names[0]} = 42" if names else "")
    return NotAnAnswer(f"No answer could be read: expected {wanted}, got {_shown(part)}.")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...")
