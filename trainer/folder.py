"""Writing into a run folder: whatever the disk refuses becomes one `RunFolderError` with the remedy that fits.

Called by the run and its metrics. It holds no state and never retries.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import RunFolderError

__all__ = ["writing"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(what: str, folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into `RunFolderError`; `what` is the thing that could not be written."""
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        remedy = "Free space" if error.errno in _FULL else "Make the folder writable"
        raise RunFolderError(
            f"cannot write {what} in {folder}: {error.strerror or error}. What was saved before is intact. "
            f"{remedy}, then continue with --resume."
        ) from error
