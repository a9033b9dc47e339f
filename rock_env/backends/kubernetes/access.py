"""Where a cluster's API is and how this server shows who it is: its service account in a pod, a kubeconfig elsewhere.

Used by the `kubernetes` backend only. It reads files and opens no connection.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rock_env.errors import FailedPrecondition, Unavailable

__all__ = ["Access", "TokenSource", "find_access", "read_kubeconfig"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""
_TOKEN_S = 60.0
"""A pod's token is replaced on the disk long before it ends; so often it is read again."""


class TokenSource:
    """A bearer token: a constant one, or a file that is replaced now and then."""

    def __init__(self, token: str = "", file: Path | None = None) -> None:
        self._token = token
        self._file = file
        self._read_at = float("-inf")

    def __call__(self) -> str:
        """Return the token; empty where there is none. A file is a few hundred bytes and in memory."""
        if self._file is not None and time.monotonic() - self._read_at > _TOKEN_S:
            self._token = self._file.read_text().strip()
            self._read_at = time.monotonic()
        return self._token


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster's API as one account sees it."""

    url: str
    tls: ssl.SSLContext
    token: TokenSource
    namespace: str
    """Where that account is at home; `default` where nothing says so."""


def find_access(kubeconfig: Path | None = None, context: str = "") -> Access:
    """Return the access that is named, that of this pod, or that of `KUBECONFIG` or `~/.kube/config`. Blocks.

    Raise `Unavailable` where there is none, and `FailedPrecondition` for a kubeconfig that cannot be used.
    """
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (ACCOUNT / "token").exists():
        return _of_this_pod(os.environ, ACCOUNT)
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    for path in named or [Path("~/.kube/config").expanduser()]:
        if path.exists():
            return read_kubeconfig(path, context)
    raise Unavailable(
        "no Kubernetes cluster is known here: this is no pod with a service account, and neither KUBECONFIG nor "
        "~/.kube/config names a file that exists. Set KUBECONFIG, give --backend kubernetes:kubeconfig=FILE, or run the "
        "server in the cluster (chart helm/rock)."
    )


def _of_this_pod(environ: Mapping[str, str], account: Path) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    return Access(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ssl.create_default_context(cafile=str(account / "ca.crt")),
        TokenSource(file=account / "token"),
        (account / "namespace").read_text().strip(),
    )


def read_kubeconfig(path: Path, context: str = "") -> Access:
    """Read a kubeconfig's context, the current one where none is named. Blocks.

    Raise `FailedPrecondition` for one that is damaged, or whose account a program must sign in.
    """
    try:
        config = yaml.safe_load(path.read_text())
        chosen = _named(config, "context", context or config["current-context"])
        cluster = _named(config, "cluster", chosen["cluster"])
        user = _named(config, "user", chosen["user"])
        for way in ("exec", "auth-provider", "username"):
            if way in user:
                raise FailedPrecondition(
                    f"the kubeconfig {path} signs in by {way!r}, which the kubernetes backend does not: it runs no programs "
                    "for it. Use one with a client certificate or a service account's token (`kubectl create token`)."
                )
        return Access(
            str(cluster["server"]).rstrip("/"),
            _tls(cluster, user, path.parent),
            _token(user, path.parent),
            str(chosen.get("namespace") or "default"),
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise FailedPrecondition(
            f"the kubeconfig {path} cannot be used: {type(error).__name__}: {error}. `kubectl --kubeconfig {path} config "
            "view` says what is in it."
        ) from error


def _named(config: Any, kind: str, name: str) -> Any:
    for each in config[f"{kind}s"]:
        if each["name"] == name:
            return each[kind]
    raise KeyError(f"it has no {kind} {name!r}")


def _token(user: Mapping[str, Any], folder: Path) -> TokenSource:
    if "tokenFile" in user:
        return TokenSource(file=folder / user["tokenFile"])
    return TokenSource(str(user.get("token") or ""))


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
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
    return (folder / fields[name]).read_bytes() if fields.get(name) else b""
