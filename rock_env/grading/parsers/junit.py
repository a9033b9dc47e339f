"""JUnit XML, which nobody vouches for: bounded in size, depth and number, without entities, whatever its encoding.

Ids are `classname::name`, or the name alone where there is no class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.parsers import expat

from rock_env.grading.outcomes import Outcome, Unreadable, worst

__all__ = ["parse_junit"]

_MAX_BYTES = 32 << 20
_MAX_DEPTH = 32
_MAX_TESTS = 200_000
_BAD = {"failure": Outcome.FAILED, "error": Outcome.ERROR, "skipped": Outcome.SKIPPED}


def parse_junit(files: Sequence[bytes]) -> Mapping[str, Outcome]:
    """Return the outcomes of all files. Raise `Unreadable` if one is no such report, or if there is none."""
    if not files:
        raise Unreadable("there is no report")
    size = sum(map(len, files))
    if size > _MAX_BYTES:
        raise Unreadable(f"the report is too large: {size} bytes, at most {_MAX_BYTES} are read")
    reader = _Reader()
    for content in files:
        reader.read(content)
    return worst(reader.found)


class _Reader:
    def __init__(self) -> None:
        self.found: list[tuple[str, Outcome]] = []
        self._open: list[str] = []
        self._test = ""
        self._outcome = Outcome.PASSED

    def read(self, content: bytes) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        self._open = []
        try:
            parser.Parse(content, True)
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise Unreadable(f"it is no JUnit XML: {error}") from None

    def _refuse(self, *_: object) -> None:
        raise Unreadable("it declares a document type or entities, which no test runner does")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._open and tag not in ("testsuites", "testsuite"):
            raise Unreadable(f"it is no JUnit XML: it begins with <{tag[:40]}>")
        if len(self._open) >= _MAX_DEPTH or len(self.found) >= _MAX_TESTS:
            raise Unreadable(f"it has more than {_MAX_TESTS} tests or is nested deeper than {_MAX_DEPTH}")
        if tag == "testcase" and "testcase" not in self._open:
            group, name = attributes.get("classname", ""), attributes.get("name", "")
            self._test, self._outcome = f"{group}::{name}" if group else name, Outcome.PASSED
        elif tag in _BAD and self._open[-1] == "testcase":
            self._outcome = worst([("", self._outcome), ("", _BAD[tag])])[""]
        self._open.append(tag)

    def _end(self, tag: str) -> None:
        self._open.pop()
        if tag == "testcase" and "testcase" not in self._open:
            self.found.append((self._test, self._outcome))
