"""Where a cluster's API is and how this server shows who it is: its service account in a pod, a kubeconfig elsewhere.

Used by the `kubernetes` backend only. It reads files and opens no connection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from rock_env.errors import Unavailable
from rock_env.security.kubeconfig import Access, TokenSource, default_kubeconfig, read_kubeconfig

__all__ = ["Access", "find_access"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""


def find_access(kubeconfig: Path | None = None, context: str = "") -> Access:
    """Return the access that is named, that of this pod, or that of `KUBECONFIG` or `~/.kube/config`. Blocks.

    Raise `Unavailable` where there is none, and `FailedPrecondition` for a kubeconfig that cannot be used.
    """
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (ACCOUNT / "token").exists():
        return _of_this_pod(os.environ, ACCOUNT)
    if (path := default_kubeconfig()) is not None:
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
