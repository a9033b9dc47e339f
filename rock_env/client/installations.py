"""Installations of ROCK by name: where each is, and where its token and its CA are, in one file of the user's.

Every client takes such a name, a context, wherever it takes an address; `ale rock context` writes the file. Secrets are not
in it, only the paths of files that hold them, which are read each time a client is made.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from rock_env.client.credentials import Credentials
from rock_env.client.forwarding import InCluster, forwarded_port
from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName, nearest
from rock_env.foreign.files import open_regular
from rock_env.security.kubeconfig import current_context, default_kubeconfig, read_kubeconfig
from rock_env.store.whole_file import replace_file
from rock_env.wire.channel import target

__all__ = [
    "DEFAULT_ADDRESS",
    "InCluster",
    "Installation",
    "add",
    "address_in_use",
    "in_cluster",
    "installations_file",
    "listed",
    "resolved",
    "use",
]

DEFAULT_ADDRESS = "127.0.0.1:8120"
"""Where `ale rock` looks for a server when nothing names one."""
_VERSION = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_TOKEN_BYTES = 4096
_Path = Annotated[str, msgspec.Meta(max_length=4096)]


class Installation(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """One installation: its address, or the Service that is reached through a cluster's API.

    Paths are absolute, or empty for what the environment holds (`ROCK_TOKEN`, …).
    """

    address: str = ""
    token_file: _Path = ""
    """Holds an API token."""
    ca: _Path = ""
    """PEM files, as in `Credentials`."""
    cert: _Path = ""
    key: _Path = ""
    kubernetes: InCluster | None = None

    def __post_init__(self) -> None:
        if bool(self.address) == (self.kubernetes is not None):
            raise ValueError("a context has an address or a Service of a cluster, and not both")

    def reached(self) -> str:
        """Return an address at which it is reached from this process, which may open a port; see `forwarded_port`."""
        return self.address if self.kubernetes is None else _local(forwarded_port(self.kubernetes))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    contexts: dict[str, Installation]
    in_use: str = ""


def installations_file() -> Path:
    """Return where this user's contexts are kept."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder else Path.home() / ".config") / "rock" / "contexts.json"


def listed() -> tuple[dict[str, Installation], str]:
    """Return the contexts by name, and the name of the one in use; empty where none is. Raise `FailedPrecondition`."""
    kept = _read()
    return dict(sorted(kept.contexts.items())), kept.in_use


def add(name: str, installation: Installation) -> bool:
    """Keep an installation under a name; return whether it took the place of another.

    Raise `InvalidArgument` for a name or an address that cannot be, and for files that cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"bad context {name!r}: expected up to 63 of a-z, 0-9, '-', '_' and '.'")
    address = installation.address or _local(0)
    target(address)
    _credentials(name, installation, Credentials()).check(address)
    kept = _read()
    replaces = name in kept.contexts
    kept.contexts[name] = installation
    _write(kept)
    return replaces


def in_cluster(
    kubeconfig: Path | None, context: str, *, namespace: str, service: str, port: int
) -> InCluster:
    """Return a Service as a context names it, with the kubeconfig and its context that mean it now.

    Raise `InvalidArgument` for names that cannot be, and `FailedPrecondition` for a kubeconfig that cannot be used.
    """
    path = kubeconfig or default_kubeconfig()
    if path is None:
        raise FailedPrecondition(
            "no cluster is known here: neither KUBECONFIG nor ~/.kube/config names a file that exists. Give --kubeconfig "
            "FILE."
        )
    path = path.expanduser().absolute()
    context = context or current_context(path)
    read_kubeconfig(path, context, programs=True)
    fields = {
        "kubeconfig": str(path),
        "context": context,
        "namespace": namespace,
        "service": service,
        "port": port,
    }
    try:
        return msgspec.convert(fields, InCluster)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"such a Service cannot be: {error}") from error


def use(name: str) -> None:
    """Have commands that name no server go to this installation; to none with an empty name. Raise `UnknownName`."""
    kept = _read()
    if name and name not in kept.contexts:
        raise _unknown(name, kept)
    kept.in_use = name
    _write(kept)


def address_in_use() -> str:
    """Return the context in use, or the address where a server of this machine is looked for."""
    return _read().in_use or DEFAULT_ADDRESS


def resolved(place: str, credentials: Credentials | None = None) -> tuple[str, Credentials]:
    """Return the address that a context's name or an address means, and what its server is shown.

    What `credentials` hold goes before what the context names, and that before the environment. Raise `UnknownName` for a
    name of no context, `InvalidArgument` for what is neither, and `FailedPrecondition` for files that cannot be read.
    """
    given = Credentials.from_environment() if credentials is None else credentials
    if not _NAME.fullmatch(place):
        target(place)
        return place, given
    kept = _read()
    found = kept.contexts.get(place)
    if found is None:
        raise _unknown(place, kept)
    own = _credentials(place, found, Credentials.from_environment())
    if credentials is not None:
        names = ("token", "ca", "cert", "key")
        own = replace(own, **{name: getattr(given, name) or getattr(own, name) for name in names})
    return found.reached(), own


def _local(port: int) -> str:
    return f"grpcs://127.0.0.1:{port}"


def _unknown(name: str, kept: _File) -> UnknownName:
    if kept.contexts:
        return nearest("context", name, kept.contexts)
    return UnknownName(
        f"{name!r} is neither an address nor a context: there are none yet. Give HOST:PORT, or add it: ale rock context add "
        f"{name} ADDRESS"
    )


def _credentials(name: str, installation: Installation, otherwise: Credentials) -> Credentials:
    files = {each: getattr(installation, each) for each in ("ca", "cert", "key")}
    for each, path in files.items():
        if path and not os.access(path, os.R_OK):
            raise FailedPrecondition(
                f"the {each} of context {name!r} cannot be read: {path}. Add the context again."
            )
    token = _token(name, installation.token_file) if installation.token_file else otherwise.token
    server_name = installation.kubernetes.server_name if installation.kubernetes else ""
    known = {each: path or getattr(otherwise, each) for each, path in files.items()}
    return Credentials(token, **known, server_name=server_name)


def _token(name: str, path: str) -> str:
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_TOKEN_BYTES + 1)
    except OSError as error:
        raise FailedPrecondition(
            f"the token of context {name!r} cannot be read: {path}: {error.strerror}. Put it there, or add the context "
            "again."
        ) from error
    token = content.decode(errors="replace").strip()
    if not token or len(content) > _MOST_TOKEN_BYTES:
        raise FailedPrecondition(
            f"the token of context {name!r} is not in {path}: it has {len(content)} bytes, expected rock_<id>_<secret> alone"
        )
    return token


def _read() -> _File:
    path = installations_file()
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read()
    except FileNotFoundError:
        return _File(_VERSION, {})
    except OSError as error:
        raise FailedPrecondition(f"the contexts in {path} cannot be read: {error.strerror}") from error
    if mode & _OTHERS_WRITE:
        raise FailedPrecondition(
            f"others may write the contexts in {path} (mode {stat.S_IMODE(mode):o}), and say where your tokens go. Look "
            f"into it, then: chmod 600 {path}"
        )
    try:
        kept = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FailedPrecondition(
            f"the contexts in {path} are damaged: {error}. Correct or remove the file."
        ) from error
    if kept.version != _VERSION:
        raise FailedPrecondition(
            f"the contexts in {path} are of version {kept.version}, this ALE reads {_VERSION}"
        )
    return kept


def _write(kept: _File) -> None:
    path = installations_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, msgspec.json.format(msgspec.json.encode(kept), indent=1), "the contexts")
