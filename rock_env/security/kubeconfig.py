"""What a kubeconfig says: where a cluster's API is, and how its user shows who they are.

Read by the `kubernetes` backend and by contexts that reach an installation through the cluster's API. It opens no
connection, and runs the program that a kubeconfig signs in by only where its caller says so.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import ssl
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rock_env.errors import FailedPrecondition, InvalidArgument, RockError, Unauthenticated
from rock_env.foreign.files import read_regular
from rock_env.foreign.yaml_text import load_yaml

__all__ = ["Access", "TokenSource", "current_context", "default_kubeconfig", "read_kubeconfig"]

_TOKEN_S = 60.0
"""So often a token's file or program is asked again; a file is replaced long before its token ends."""
_PROGRAM_S = 120.0
"""A program may have its user sign in with a browser."""
_EARLY_S = 60.0
_MOST_BYTES = 4 << 20
"""What loads YAML calls itself for each level, and the process ends where its stack does."""
_MOST_TOKEN_BYTES = 64 << 10
_TOKEN = re.compile(r"[!-~]*", re.ASCII)
_IMPERSONATES = ("as", "as-uid", "as-groups", "as-user-extra")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TokenSource:
    """A bearer token: a constant one, a file that is replaced now and then, or what a program says."""

    def __init__(
        self,
        token: str = "",
        file: Path | None = None,
        program: Callable[[], tuple[str, float | None]] | None = None,
    ) -> None:
        """`program` returns a token and for how long it holds, in seconds; None: that is not known."""
        self._token = token
        self._file = file
        self._program = program
        self._until = float("-inf")
        self._lock = threading.Lock()

    def __call__(self) -> str:
        """Return the token; empty where there is none. Reads a file of a few hundred bytes; a program takes its time.

        Threads that ask at once wait for one reading. Raise `FailedPrecondition` where the file has no token, and what the
        program raises.
        """
        with self._lock:
            return self._now()

    def _now(self) -> str:
        if time.monotonic() < self._until:
            return self._token
        if self._program is not None:
            token, holds_s = self._program()
            self._token = _shown(token)
            self._until = time.monotonic() + (_TOKEN_S if holds_s is None else holds_s - _EARLY_S)
        elif self._file is not None:
            self._token = _shown(_in_file(self._file))
            self._until = time.monotonic() + _TOKEN_S
        return self._token


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster's API as one account sees it."""

    url: str
    tls: ssl.SSLContext
    token: TokenSource
    namespace: str
    """Where that account is at home; `default` where nothing says so."""


def default_kubeconfig() -> Path | None:
    """Return the first file of `KUBECONFIG` that exists, or `~/.kube/config`; None where there is none."""
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    for path in named or [Path("~/.kube/config").expanduser()]:
        if path.exists():
            return path
    return None


def current_context(path: Path) -> str:
    """Return the name of a kubeconfig's current context. Blocks. Raise `FailedPrecondition`."""
    with _usable(path):
        return _text(load_yaml(_bounded(path))["current-context"])


def read_kubeconfig(path: Path, context: str = "", *, programs: bool = False) -> Access:
    """Read a kubeconfig's context, the current one where none is named. Blocks.

    With `programs`, an account that a program signs in has a token source that runs it, as `kubectl` does. Raise
    `FailedPrecondition` for a file that is damaged, or whose account signs in in another way.
    """
    with _usable(path):
        config = load_yaml(_bounded(path))
        chosen = _named(config, "context", context or config["current-context"])
        cluster = _named(config, "cluster", chosen["cluster"])
        user = _named(config, "user", chosen["user"])
        if acts := next((each for each in _IMPERSONATES if user.get(each)), ""):
            raise FailedPrecondition(
                f"the kubeconfig {path} has its account act as another ({acts!r}), which is not done here: it would act "
                "with its own rights. Use an account that has just those."
            )
        if programs and "exec" in user and path.stat().st_mode & stat.S_IWOTH:
            raise FailedPrecondition(
                f"others may write the kubeconfig {path}, and say which program is run to sign in. Look into it, then: "
                f"chmod 600 {path}"
            )
        for way in ("exec", "auth-provider", "username"):
            if way in user and not (way == "exec" and programs):
                raise FailedPrecondition(
                    f"the kubeconfig {path} signs in by {way!r}, which is not done here: no program is run for it. Use one "
                    "with a client certificate or a service account's token (`kubectl create token`)."
                )
        url = cluster["server"].rstrip("/")
        _check_private(url, user)
        return Access(
            url,
            _tls(cluster, user, path.parent),
            _token(user, path.parent),
            _text(chosen.get("namespace") or "default"),
        )


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Say of every damage which file it is in."""
    try:
        yield
    except (
        OSError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        RecursionError,
        OverflowError,
    ) as error:
        if isinstance(error, RockError) and not isinstance(error, InvalidArgument):
            raise
        raise FailedPrecondition(
            f"the kubeconfig {path} cannot be used: {type(error).__name__}: {error}. `kubectl --kubeconfig {path} config "
            "view` says what is in it."
        ) from error


def _text(value: object) -> str:
    """Return what has to be a text. Lists that name each other are small in a file, and as texts without an end."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return value


def _bounded(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    return read_regular(path, most_bytes)


def _in_file(path: Path) -> str:
    try:
        return _bounded(path, _MOST_TOKEN_BYTES).decode()
    except (OSError, ValueError) as error:
        raise FailedPrecondition(
            f"the token for the cluster cannot be read: {path}: {error}. Put it there again."
        ) from error


def _shown(token: str) -> str:
    """Return a token without blanks at its ends. Raise `FailedPrecondition`, without the token, where it cannot be sent."""
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise FailedPrecondition(
            f"the token for the cluster cannot be one: among its {len(token)} characters are blanks or others that no "
            "header takes. Sign in again."
        )
    return token


def _check_private(url: str, user: Mapping[str, Any]) -> None:
    """Raise `ValueError` where others could read the account's token on its way."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return
    shows = any(user.get(way) for way in ("token", "tokenFile", "exec"))
    if parts.scheme != "http" or (shows and parts.hostname not in _LOOPBACK):
        raise ValueError(f"the cluster's server is {url!r}, expected https:// for an account with a token")


def _named(config: Any, kind: str, name: str) -> Any:
    name = _text(name)
    for each in config[f"{kind}s"]:
        if each["name"] == name:
            return each[kind]
    raise KeyError(f"it has no {kind} {name!r}")


def _token(user: Mapping[str, Any], folder: Path) -> TokenSource:
    if "exec" in user:
        return TokenSource(program=_program(user["exec"], folder))
    if "tokenFile" in user:
        return TokenSource(file=folder / user["tokenFile"])
    return TokenSource(_shown(_text(user.get("token") or "")))


def _program(order: Mapping[str, Any], folder: Path) -> Callable[[], tuple[str, float | None]]:
    """Return what runs a credential plugin; see the API's `client.authentication.k8s.io`."""
    command = _text(order["command"])
    if "/" in command:
        command = str(folder / command)
    argv = [command, *map(_text, order.get("args") or ())]
    info = {
        "apiVersion": _text(order["apiVersion"]),
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    own = {_text(each["name"]): _text(each["value"]) for each in order.get("env") or ()}

    def run() -> tuple[str, float | None]:
        env = {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_PROGRAM_S,
                check=True,
            )
            status = json.loads(done.stdout)["status"]
            token, ends = status["token"], status.get("expirationTimestamp")
            if not isinstance(token, str):
                raise TypeError(f"its token is of type {type(token).__name__}, expected a string")
            holds_s = datetime.fromisoformat(ends).timestamp() - time.time() if ends else None
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            raise Unauthenticated(
                f"the kubeconfig's program {command!r} gave no token for the cluster: {type(error).__name__}: {error}. Sign "
                "in with it and try again; `kubectl get pods` runs it, too."
            ) from error
        return token, holds_s

    return run


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    unchecked = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(unchecked, bool):
        raise TypeError(
            f"insecure-skip-tls-verify is of type {type(unchecked).__name__}, expected true or false"
        )
    if unchecked:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate, key = (_content(user, f"client-{what}", folder) for what in ("certificate", "key"))
    if certificate and key:
        with tempfile.NamedTemporaryFile(
            prefix="rock-", suffix=".pem"
        ) as file:  # the library reads files only
            file.write(certificate + b"\n" + key)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _content(fields: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """Return what a field's `-data` holds, or the file it names; empty where it has neither."""
    if data := fields.get(f"{name}-data"):
        try:
            return base64.b64decode(data)
        except binascii.Error as error:
            raise ValueError(f"{name}-data is not base64") from error
    return _bounded(folder / fields[name]) if fields.get(name) else b""
