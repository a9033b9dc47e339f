"""The token file of a server: JSON with the hash of each token's secret, readable by its owner only, or a mounted Secret.

Written by `ale rock token`, read by the server. It is replaced as a whole (write, fsync, rename) under a lock on its
folder, so a reader sees the old or the new one and two writers cannot lose each other's change.

The server looks at the file's inode, size and times at each call (one `stat`, a few µs) and reads it again when they
changed. A signal would cost less, but then a revoked token would work until somebody remembered to send it. A file
that cannot be read admits nobody: the last good one may hold a token that was revoked since.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound, RockError, Unavailable
from rock_env.foreign import budget
from rock_env.foreign.files import open_regular
from rock_env.security.auth import Scope, Token, check_scopes, check_tenant
from rock_env.store.whole_file import make_private_file, write_whole

__all__ = ["TokenFile", "add_token", "read_tokens", "revoke_token"]

log = logging.getLogger(__name__)

_VERSION = 1
_Seconds = Annotated[
    float, msgspec.Meta(ge=0, lt=253_402_300_800)
]  # until the year 10000, so it can be printed


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}\Z")]
    tenant: str
    scopes: list[Scope]
    sha256: str
    """Of the secret's text, in base64."""
    created_at: _Seconds
    expires_at: _Seconds | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    tokens: list[_Entry]


def read_tokens(path: Path) -> dict[str, Token]:
    """Return the tokens in the file by id. Raise `NotFound`, or `FailedPrecondition` for a file it will not trust."""
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            _check_status(path, status)
            budget.check_size(status.st_size, f"the token file {path}")
            content = file.read()
    except FileNotFoundError as error:
        raise NotFound(
            f"no token file {path}. Make one with `ale rock token create --tokens {path} --tenant NAME --scope env`."
        ) from error
    except OSError as error:
        raise FailedPrecondition(f"cannot read the token file {path}: {error.strerror}.") from error
    try:
        held = msgspec.json.decode(content, type=_File)
        if held.version != _VERSION:
            raise InvalidArgument(f"version {held.version}, and this server reads {_VERSION}")
        tokens = [_token(entry) for entry in held.tokens]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidArgument) as error:
        raise FailedPrecondition(
            f"{path} is not a token file: {str(error).rstrip('.')}. Restore it, or move it away and make new tokens."
        ) from error
    by_id = {token.id: token for token in tokens}
    if len(by_id) < len(tokens):
        raise FailedPrecondition(f"{path} is not a token file: two tokens have one id. Remove one of them.")
    return by_id


def _check_status(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FailedPrecondition(f"{path} is not a regular file, so it is not used for tokens.")
    if status.st_mode & 0o077 and not _is_mounted(status):
        raise FailedPrecondition(
            f"others may read or change the token file {path}: mode {stat.S_IMODE(status.st_mode):04o}, expected "
            f"0600. Make sure nobody added a token, then: chmod 600 {path}"
        )


def _is_mounted(status: os.stat_result) -> bool:
    """Return whether a file is as Kubernetes mounts a Secret: root's, and readable by a group of this process alone.

    Of one's own files the mode can be changed, and a person's group may be everybody's.
    """
    groups = {os.getegid(), *os.getgroups()}
    return status.st_mode & 0o077 == 0o040 and status.st_uid == 0 != os.geteuid() and status.st_gid in groups


def _token(entry: _Entry) -> Token:
    try:
        digest = base64.b64decode(entry.sha256, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"the sha256 of token {entry.id} is not base64") from error
    if len(digest) != 32:
        raise InvalidArgument(f"the sha256 of token {entry.id} has {len(digest)} bytes, expected 32")
    return Token(
        entry.id,
        check_tenant(entry.tenant),
        check_scopes(entry.scopes),
        digest,
        entry.created_at,
        entry.expires_at,
    )


def add_token(path: Path, token: Token) -> None:
    """Add a token to the file, which is made if it is missing. Raise `FailedPrecondition` if it cannot be."""
    with _changing(path) as tokens:
        tokens[token.id] = token


def revoke_token(path: Path, token_id: str) -> Token:
    """Take a token out of the file and return it. Raise `NotFound` if there is no such token."""
    with _changing(path, make=False) as tokens:
        token = tokens.pop(token_id, None)
        if token is None:
            raise NotFound(
                f"no token {token_id!r} in {path}. `ale rock token list --tokens {path}` shows them."
            )
    return token


@contextmanager
def _changing(path: Path, *, make: bool = True) -> Iterator[dict[str, Token]]:
    """Yield the file's tokens for change, and write them if the block ends well."""
    path = path.resolve()  # a link stays one; what it names is replaced
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FailedPrecondition(
            f"cannot open the folder {path.parent} of the token file: {error.strerror}."
        ) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            tokens = read_tokens(path)
        except NotFound:
            if not make:
                raise
            tokens = {}
        yield tokens
        _write(path, tokens)
    finally:
        os.close(folder)  # and with it the lock


def _write(path: Path, tokens: Mapping[str, Token]) -> None:
    entries = [
        _Entry(
            token.id,
            token.tenant,
            sorted(token.scopes),
            base64.b64encode(token.secret_sha256).decode(),
            token.created_at,
            token.expires_at,
        )
        for token in tokens.values()
    ]
    content = msgspec.json.format(msgspec.json.encode(_File(_VERSION, entries)), indent=1)
    try:
        write_whole(path, lambda beside: make_private_file(beside, content + b"\n"))
    except OSError as error:
        raise FailedPrecondition(
            f"cannot write the token file {path}: {error.strerror}. It is unchanged."
        ) from error


class TokenFile:
    """The tokens of a running server, as fresh as the file. Used on one event loop."""

    def __init__(self, path: Path) -> None:
        """Read the file for the first time. Raise as `read_tokens` does."""
        self._path = path
        self._seen = self._stamp()
        self._tokens = read_tokens(path)
        self._failure: RockError | None = None

    def tokens(self) -> Mapping[str, Token]:
        """Return the tokens by id. Raise `Unavailable`, and log the cause once, while the file cannot be read."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            self._read()
        if self._failure is not None:
            raise Unavailable("the server cannot read its token file and admits nobody; its log says why.")
        return self._tokens

    def _read(self) -> None:
        try:
            self._tokens, self._failure = read_tokens(self._path), None
        except RockError as error:
            self._failure = error
            log.error("token file unreadable, all calls refused cause=%s", error)
        else:
            log.info("token file read tokens=%d", len(self._tokens))

    def _stamp(self) -> tuple[int, ...]:
        """Return what differs when the file was replaced or changed; empty while it is missing."""
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode
