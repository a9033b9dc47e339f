"""The answers of a run's reward workers, kept by what was asked: `RUN/rewards/answers.jsonl`, one JSON object a line.

A line is on its way to the disk before the answer is used, so a run that was killed and resumed asks nobody twice. It
keeps verdicts only: what failed is asked again.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import msgspec

from trainer.errors import RunFolderError
from trainer.files.appended import Appended
from trainer.files.folder import writing
from trainer.reward.base import Answer

__all__ = ["Kept", "KeptAnswers"]

FILE = Path("rewards", "answers.jsonl")


class Kept(msgspec.Struct, frozen=True):
    """One line."""

    digest: str
    worker: str
    latency_s: float
    answer: Answer


class KeptAnswers:
    """Answers by digest. Enter it to read the file and to append; one process at a time."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FILE
        self._found: dict[str, Kept] = {}

    def __enter__(self) -> KeptAnswers:
        with writing("reward answers", self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = Appended(self._path)
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def get(self, digest: str) -> Kept | None:
        """Return what was answered, if anything was."""
        return self._found.get(digest)

    def add(self, kept: Kept) -> None:
        """Keep an answer. Raise `RunFolderError` where the disk refuses."""
        with writing("reward answers", self._path.parent):
            self._file.write(msgspec.json.encode(kept) + b"\n")
        self._found[kept.digest] = kept

    def _read(self) -> None:
        """Read all lines; cut off one that a killed process left unfinished."""
        with writing("reward answers", self._path.parent):
            data = self._path.read_bytes()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                self._file.cut(whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                kept = msgspec.json.decode(line, type=Kept)
            except (msgspec.DecodeError, ValueError) as error:
                raise RunFolderError(
                    f"line {number} of {self._path} is no kept answer ({error}): got {line[:80]!r}. Remove that line; "
                    "what it answered is asked again."
                ) from error
            self._found[kept.digest] = kept
