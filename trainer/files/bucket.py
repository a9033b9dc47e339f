"""The objects below a prefix of an S3 bucket, through obstore.

Credentials, region and endpoint are the environment's (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` ...) or the machine's role.
Every request is bounded in time and tried again; then it is a `CopyError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainer.errors import CheckpointError, ConfigError, CopyError

__all__ = ["Bucket", "check_place"]

_PLACE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w=+-][\w.=+-]*)+", re.ASCII)
_TIMES = {"connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=120)}
_AGAIN = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_PART_BYTES, _SAID = 5 << 20, 400
"""Most bytes of one request, and characters of an answer that an error repeats."""


def check_place(text: str) -> str:
    """Return the text. Raise `ConfigError` unless it is `s3://BUCKET/PREFIX` or empty."""
    if text and not _PLACE.fullmatch(text):
        raise ConfigError(f"got {text!r}, expected s3://BUCKET/PREFIX with a prefix of the run's own")
    return text


class Bucket:
    """One prefix. All that ask raise `CopyError`."""

    def __init__(self, place: str) -> None:
        """Ask nothing yet. Raise `ConfigError` for no `s3://BUCKET/PREFIX`, and where obstore is not installed."""
        bucket, _, prefix = check_place(place).removeprefix("s3://").partition("/")
        try:
            import obstore
            from obstore.store import S3Store
        except ModuleNotFoundError as error:
            raise ConfigError(f"{place} needs the package obstore: pip install 'ale-rl[s3]'.") from error
        self.place, self._client = place, obstore
        options: Any = {"allow_http": True, **_TIMES}  # where AWS_ENDPOINT_URL is http://
        again: Any = _AGAIN
        self._store = S3Store(bucket, prefix=prefix, client_options=options, retry_config=again)

    def put(self, name: str, content: bytes | Path) -> None:
        """Write an object as a whole, from memory or a file."""
        with self._asking("write", name):
            self._client.put(self._store, name, content, chunk_size=_PART_BYTES)

    def read(self, name: str, most: int) -> Iterator[bytes]:
        """Yield an object's content. Raise `CheckpointError` for one that is not there or has more than `most` bytes."""
        with self._asking("read", name):
            found = self._client.get(self._store, name)
            size = found.meta["size"]
            if size > most:
                raise CheckpointError(f"{self.place}/{name} has {size} bytes, expected at most {most}")
            if size <= _PART_BYTES:  # some servers know no range that is all
                yield bytes(found.bytes())
                return
            for start in range(0, size, _PART_BYTES):
                end = min(size, start + _PART_BYTES)
                yield bytes(self._client.get_range(self._store, name, start=start, end=end))

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, within it."""
        with self._asking("list", folder):
            found = [each["path"] for some in self._client.list(self._store, folder) for each in some]
        return [name.removeprefix(f"{folder}/") for name in found]

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        with self._asking("delete", name):
            self._client.delete(self._store, name)

    @contextmanager
    def _asking(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.place}/{name} is not there") from error
        except (self._client.exceptions.BaseError, OSError, ValueError) as error:
            said = " ".join(str(error).partition("\n\nDebug source")[0].split())[:_SAID]
            raise CopyError(f"cannot {what} {self.place}/{name}: {said}") from error
