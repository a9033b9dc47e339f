"""The one error tree of ROCK and the one table that carries it across process borders.

    RockError
    ├── InvalidArgument (ValueError)          the request itself is wrong; never retried
    │   └── UnknownName (LookupError)         an unknown env, parameter or backend; lists the known names
    ├── NotFound (LookupError)                an id the server does not know (any more)
    ├── FailedPrecondition (RuntimeError)     right request, wrong state (sequence gap, step before reset)
    │   └── ResetDivergence                   a replayed prefix did not reproduce its recorded observations
    ├── ResourceExhausted (RuntimeError)      no capacity; carries `retry_after_s`
    ├── DeadlineExceeded (TimeoutError)       the caller's deadline passed
    ├── Unauthenticated (PermissionError)     nobody knows who calls: no valid token
    ├── PermissionDenied (PermissionError)    the caller is known and may not do this
    ├── Unimplemented (NotImplementedError)   a capability this backend or environment lacks
    ├── Unavailable (ConnectionError)         server or network gone; safe to retry with the same idempotency key
    └── InfraError (RuntimeError)             the service failed the request; never a reward of 0
        ├── DiskFull                          a sandbox, or the server, has no space left for what was to be written
        ├── EnvLost                           the process that hosted the environment died
        └── SandboxLost                       a sandbox ended while its user still needed it

Every class is picklable (Ray) and crosses the wire as its `code`, never as a class path.
"""

from __future__ import annotations

import difflib
import errno
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

__all__ = [
    "CODES",
    "DeadlineExceeded",
    "DiskFull",
    "EnvLost",
    "FailedPrecondition",
    "InfraError",
    "InvalidArgument",
    "NotFound",
    "OwnLimit",
    "PermissionDenied",
    "ResetDivergence",
    "ResourceExhausted",
    "RockError",
    "SandboxLost",
    "Unauthenticated",
    "Unavailable",
    "UnfitFiles",
    "Unimplemented",
    "UnknownName",
    "as_rock_error",
    "did_you_mean",
    "disk_full",
    "from_code",
    "listed",
    "lost_box",
    "nearest",
    "of_full_disk",
    "one_line",
    "plugin_call",
]

log = logging.getLogger(__name__)
_NEAR = 0.5
"""Share of equal characters, as difflib counts, from which a name is near another."""
_COMPARED = 8
"""Of so many near names that one is meant to which the fewest edits lead; two letters that changed places are one."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = ("no space left on device", "disk quota exceeded")
_SQLITE_FULL = 13
_POSTGRES_FULL = "53100"
"""PostgreSQL's disk_full (Appendix A of its manual)."""
_LISTED = 40
"""Most names in one message."""


_MOST_SAID = 1200
"""Characters of a message that leaves a server."""


def one_line(message: str) -> str:
    """Return a message as one line of at most about 1,200 characters; of a longer one the middle is left out."""
    if len(message) > _MOST_SAID:
        message = f"{message[: _MOST_SAID * 3 // 4]} … {message[-_MOST_SAID // 4 :]}"
    return " ".join(line.strip() for line in message.splitlines() if line.strip())


class RockError(Exception):
    """Base of every error ROCK raises on purpose.

    `code` names the class on the wire; `grpc` is the gRPC status name, `http` the REST status and
    `exit_code` what the command line returns.
    """

    code: ClassVar[str] = "internal"
    grpc: ClassVar[str] = "INTERNAL"
    http: ClassVar[int] = 500
    exit_code: ClassVar[int] = 70
    own_limit: bool = False
    """A sandbox used up what its own limits give it; what the machine lacked is another matter. Callers of a server are
    not told."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:  # LookupError kin would print repr(message)
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.retry_after_s), self.__dict__)


def _rebuild(kind: type[RockError], message: str, retry_after_s: float | None) -> RockError:
    return kind(message, retry_after_s=retry_after_s)


class InvalidArgument(RockError, ValueError):
    code, grpc, http, exit_code = "invalid_argument", "INVALID_ARGUMENT", 400, 2


class UnknownName(InvalidArgument, LookupError):
    code, grpc, http, exit_code = "unknown_name", "INVALID_ARGUMENT", 400, 2


class UnfitFiles(InvalidArgument):
    """A sandbox's files cannot be had as they are: too many bytes, nested too deep, or no tree that can be copied.

    It is whoever wrote them who did that, so a grade of them is a reward of 0 and no failure of ours.
    """

    code, grpc, http, exit_code = "unfit_files", "INVALID_ARGUMENT", 400, 2


class NotFound(RockError, LookupError):
    code, grpc, http, exit_code = "not_found", "NOT_FOUND", 404, 66


class FailedPrecondition(RockError, RuntimeError):
    code, grpc, http, exit_code = "failed_precondition", "FAILED_PRECONDITION", 409, 65


class ResetDivergence(FailedPrecondition):
    code, grpc, http, exit_code = "reset_divergence", "FAILED_PRECONDITION", 409, 65


class ResourceExhausted(RockError, RuntimeError):
    code, grpc, http, exit_code = "resource_exhausted", "RESOURCE_EXHAUSTED", 429, 75
    queue_position: int | None = None
    """Where the request stood in its tenant's queue when it was given up, from 1; None where nothing queued."""


class DeadlineExceeded(RockError, TimeoutError):
    code, grpc, http, exit_code = "deadline_exceeded", "DEADLINE_EXCEEDED", 504, 75


class Unauthenticated(RockError, PermissionError):
    code, grpc, http, exit_code = "unauthenticated", "UNAUTHENTICATED", 401, 77


class PermissionDenied(RockError, PermissionError):
    code, grpc, http, exit_code = "permission_denied", "PERMISSION_DENIED", 403, 77


class Unimplemented(RockError, NotImplementedError):
    code, grpc, http, exit_code = "unimplemented", "UNIMPLEMENTED", 501, 69


class Unavailable(RockError, ConnectionError):
    code, grpc, http, exit_code = "unavailable", "UNAVAILABLE", 503, 69


class InfraError(RockError, RuntimeError):
    code, grpc, http, exit_code = "infra", "INTERNAL", 500, 70


class DiskFull(InfraError):
    code, grpc, http, exit_code = "disk_full", "RESOURCE_EXHAUSTED", 507, 70


class EnvLost(InfraError):
    code, grpc, http, exit_code = "env_lost", "DATA_LOSS", 500, 70


class SandboxLost(InfraError):
    code, grpc, http, exit_code = "sandbox_lost", "DATA_LOSS", 500, 70


class OwnLimit(str):
    """Why a sandbox ended, where it used up what its own limits give it."""

    __slots__ = ()


def lost_box(reason: str) -> InfraError:
    """Return the error for a sandbox that ended."""
    error = InfraError(str(reason))
    error.own_limit = isinstance(reason, OwnLimit)
    return error


CODES: dict[str, type[RockError]] = {
    kind.code: kind
    for kind in (
        RockError,
        InvalidArgument,
        UnknownName,
        UnfitFiles,
        NotFound,
        FailedPrecondition,
        ResetDivergence,
        ResourceExhausted,
        DeadlineExceeded,
        Unauthenticated,
        PermissionDenied,
        Unimplemented,
        Unavailable,
        InfraError,
        DiskFull,
        EnvLost,
        SandboxLost,
    )
}


def from_code(code: str, message: str, *, retry_after_s: float | None = None) -> RockError:
    """Rebuild the error that `code` names; an unknown code is an `InfraError` that quotes it."""
    kind = CODES.get(code)
    if kind is None:
        return InfraError(f"{message} (unknown error code {code!r} from a newer server?)")
    return kind(message, retry_after_s=retry_after_s)


def nearest(what: str, got: str, known: Iterable[str]) -> UnknownName:
    """Build the error for an unknown name: what happened, what was got, the nearest and all valid ones."""
    names = sorted(known)
    return UnknownName(f"unknown {what} {got!r}.{did_you_mean(got, names)} Known: {listed(names)}")


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'NAME'?" for the known name nearest to what was got, or nothing where none is near."""
    close = difflib.get_close_matches(got, list(known), n=_COMPARED, cutoff=_NEAR)
    if not close:
        return ""
    from rapidfuzz.distance import (
        OSA,  # this module is imported wherever a command or a server starts, and this is rare
    )

    return f" Did you mean {min(close, key=lambda name: OSA.distance(got, name))!r}?"


def listed(names: Sequence[str]) -> str:
    """Return the names for the end of a message: the first few of many, and how many more there are."""
    more = len(names) - _LISTED
    return (", ".join(names[:_LISTED]) or "(none)") + (f", and {more} more" if more > 0 else "")


def as_rock_error(error: Exception, *, doing: str) -> RockError:
    """Return a plugin's error as it is if it is ROCK's own, else as an `InfraError` that names type and call."""
    if isinstance(error, RockError):
        return error
    return InfraError(f"{doing} failed: {type(error).__name__}: {error}.")


def disk_full(said: object) -> DiskFull:
    """Return the error for a disk of the server's that is full, with what was said of it."""
    return DiskFull(f"the server's disk is full: {said}. Free some space there, then ask again.")


def of_full_disk(error: BaseException) -> DiskFull | None:
    """Return the error for a full disk where that is what an error, or what it was raised from, comes from; else None.

    Known are `OSError`, SQLite, PostgreSQL and the words in which an engine ends its own.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DiskFull):
        if (
            (isinstance(cause, OSError) and cause.errno in _FULL)
            or getattr(cause, "sqlite_errorcode", None) == _SQLITE_FULL
            or getattr(cause, "sqlstate", "") == _POSTGRES_FULL
            or (isinstance(cause, InfraError) and cause.message.lower().rstrip(".").endswith(_FULL_WORDS))
        ):
            return disk_full(str(cause).rstrip("."))
        cause = cause.__cause__
    return None


@contextmanager
def plugin_call(doing: str) -> Iterator[None]:
    """Turn whatever a plugin raises inside into a `RockError`, logged with its traceback."""
    try:
        yield
    except RockError:
        raise
    except Exception as error:
        log.exception("plugin failed call=%s", doing)
        raise as_rock_error(error, doing=doing) from error
