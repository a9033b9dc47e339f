"""What an operator may set when starting a server, by `python -m rock_env.server` or `ale rock serve`.

Used by `server/app.py` and the command line. It checks what can be checked without touching the system.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rock_env.errors import InvalidArgument
from rock_env.store.open import is_postgres
from rock_env.telemetry.logs import LogFormat
from rock_env.wire.channel import is_local, is_rest, is_tls, target

__all__ = ["BuildNetwork", "Isolation", "ServerOptions", "parse"]

BuildNetwork = Literal["default", "none"]
_LEAST_LEASE_S = 0.5
"""A server under load does not come to renew more often."""
Isolation = Literal["auto", "namespaces", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of one server; each is documented by the command line's help."""

    listen: str = "127.0.0.1:8120"
    http: str = ""
    http_url: str = ""
    tokens: str = ""
    insecure: bool = False
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    workers: int = 0
    idle_timeout_s: float = 1800.0
    step_timeout_s: float = 60.0
    sandbox_timeout_s: float = 600.0
    most_environments: int = 10_000
    hang_grace_s: float = 5.0
    drain_s: float = 2.0
    env: Sequence[str] = ()
    data: Sequence[str] = ()
    worker_memory_gib: float = 4.0
    state: str = ""
    store: str = ""
    shelf: str = ""
    quotas: str = ""
    build_network: BuildNetwork = "default"
    node: str = platform.node()
    replica_lease_s: float = 10.0
    isolation: Isolation = "auto"
    metrics: str = ""
    log_format: LogFormat = "text"
    exit_with_parent: bool = False
    remove_folder: bool = False

    @property
    def tls(self) -> bool:
        """Return whether the server speaks TLS."""
        return bool(self.cert)

    @property
    def sandbox_isolation(self) -> Isolation:
        """Return how sandboxes are fenced: among tenants a box without a fence is not a fallback, it is a leak."""
        return "namespaces" if self.tokens and self.isolation == "auto" else self.isolation

    @property
    def private(self) -> bool:
        """Return whether the one who started the server is the only caller: it listens on a unix socket, without tokens."""
        return not self.tokens and not self.http and target(self.listen).startswith("unix:")

    @property
    def named_data(self) -> dict[str, str]:
        """Return the data of --data by name. Raise `InvalidArgument` for a malformed one."""
        named = {}
        for text in self.data:
            name, equals, path = text.partition("=")
            if not (equals and path and name.isidentifier()):
                raise InvalidArgument(
                    f"--data expects NAME=PATH, NAME of letters, digits and _, got {text!r}."
                )
            named[name] = str(Path(path).absolute())
        return named

    def check(self) -> None:
        """Raise `InvalidArgument` for options that contradict each other, or that leave a door open."""
        unix = target(self.listen).startswith("unix:")
        missing = [path for path in self.named_data.values() if not Path(path).exists()]
        if missing:
            raise InvalidArgument(f"--data names {missing[0]!r}, which does not exist. Correct the path.")
        if not self.worker_memory_gib > 0:
            raise InvalidArgument(f"--worker-memory-gib must be above 0, got {self.worker_memory_gib:g}.")
        if is_rest(self.listen):
            raise InvalidArgument(
                f"--listen is the address of gRPC, got {self.listen}. Serve REST with --http."
            )
        if self.http and target(self.http).startswith("unix:"):
            raise InvalidArgument(f"--http needs host:port, got {self.http!r}.")
        if self.http_url and not (self.http and is_rest(self.http_url)):
            raise InvalidArgument(
                f"--http-url is where clients reach --http: got {self.http_url!r}, expected http://… or https://…, "
                "and --http too."
            )
        if bool(self.cert) != bool(self.key):
            raise InvalidArgument(f"TLS needs both --cert and --key: got {self.cert!r} and {self.key!r}.")
        if self.client_ca and not self.tls:
            raise InvalidArgument(
                "--client-ca checks clients' certificates over TLS: give --cert and --key too."
            )
        if self.insecure and (self.tokens or self.tls):
            raise InvalidArgument("--insecure means no tokens and no TLS: leave it out, or leave those out.")
        if unix and (self.tls or self.insecure) and not self.http:
            raise InvalidArgument(
                "a unix socket takes neither TLS nor --insecure: its file's owner alone may connect."
            )
        if is_tls(self.listen) and not self.tls:
            raise InvalidArgument(f"{self.listen} asks for TLS: give --cert and --key.")
        if is_postgres(self.store) and not self.state:
            raise InvalidArgument(
                "a PostgreSQL store is for servers that take over from each other: give --state DIR, a folder that all "
                "those on this machine share."
            )
        if not self.replica_lease_s >= _LEAST_LEASE_S:
            raise InvalidArgument(
                f"--replica-lease-s must be at least {_LEAST_LEASE_S:g}, got {self.replica_lease_s:g}."
            )
        for listen in (() if unix else (self.listen,)) + ((self.http,) if self.http else ()):
            self._check_network(listen)

    def _check_network(self, listen: str) -> None:
        local = is_local(listen)
        if self.insecure and not local:
            raise InvalidArgument(
                f"--insecure is for loopback addresses, got {listen}: whoever reached it could run code here. "
                "Give --tokens, --cert and --key instead."
            )
        if not self.tokens and not self.insecure:
            raise InvalidArgument(
                f"will not serve {listen} without tokens: whoever reached it could run code here. Give --tokens "
                "(ale rock token create makes them)"
                + (", or --insecure to serve every user of this machine." if local else ".")
            )
        if self.tokens and not local and not self.tls:
            raise InvalidArgument(
                f"will not take tokens at {listen} in clear text. Give --cert and --key, or listen on a loopback "
                "address behind a proxy that does TLS."
            )


def parse(argv: Sequence[str] | None) -> tuple[ServerOptions, str]:
    """Return the options in `argv` (None: the process's own) and the log level; exit on a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m rock_env.server", description="Serve environments over gRPC."
    )
    default = ServerOptions()
    add = parser.add_argument
    add("--listen", default=default.listen, help="unix:///path or host:port (port 0: any)")
    rest = "also serve REST, /openapi.json and /docs here, over the same TLS (port 0: any)"
    add("--http", default="", metavar="HOST:PORT", help=rest)
    url = "where clients reach --http, if elsewhere; `*` for a name per exposed port (https://*.boxes.example.org)"
    add("--http-url", default="", metavar="URL", help=url)
    add("--tokens", default="", metavar="FILE", help="who may call (ale rock token)")
    add("--insecure", action="store_true", help="no tokens and no TLS; loopback addresses only")
    add("--cert", default="", metavar="FILE", help="TLS: the server's certificate chain, PEM")
    add("--key", default="", metavar="FILE", help="TLS: its key, PEM")
    add("--client-ca", default="", metavar="FILE", help="mTLS: only clients this CA signed may connect")
    add("--workers", type=int, default=0, help="env-host processes; 0 means one per CPU")
    seconds = {
        "idle-timeout-s": "close what nobody used for so long",
        "step-timeout-s": "longest call on an env in a worker",
        "sandbox-timeout-s": "longest call on an env in a sandbox",
        "hang-grace-s": "then a worker that hangs is killed",
        "replica-lease-s": "after so long without a sign of life, servers that share the store take over",
        "drain-s": "how long running calls may take to finish when the server stops",
    }
    for name, meaning in seconds.items():
        add(f"--{name}", type=float, default=getattr(default, name.replace("-", "_")), help=meaning)
    offered = "also offer this EnvSpec (or FILE.py:OBJECT)"
    add("--env", action="append", default=[], metavar="MODULE:OBJECT", help=offered)
    named = (
        "a file or folder that arguments of environments may name, as NAME; without it callers may name none"
    )
    most = "environments of one tenant at once"
    add("--most-environments", type=int, default=default.most_environments, metavar="N", help=most)
    add("--data", action="append", default=[], metavar="NAME=PATH", help=named)
    memory = "what one env-host process may allocate"
    add("--worker-memory-gib", type=float, default=default.worker_memory_gib, metavar="GIB", help=memory)
    isolation = (
        "of process sandboxes; auto: namespaces, or none where they do not work and --tokens is not given"
    )
    add("--isolation", default="auto", choices=["auto", "namespaces", "none"], help=isolation)
    lasting = (
        "folder for records, boxes and snapshots, made if absent: sandboxes then outlive the server, and the next "
        "one takes them up again; without it they end with the server"
    )
    add("--state", default="", metavar="DIR", help=lasting)
    kept = (
        "SQLite file for the records of sandboxes, made if absent, or postgresql://user@host:port/database, which "
        "several servers may share; without it they are in the folder --state, or in memory"
    )
    add("--store", default="", metavar="FILE|URL", help=kept)
    shown = "folder that every sandbox sees, read-only, as /opt/shelf (commands find it by ROCK_SHELF)"
    add("--shelf", default="", metavar="DIR", help=shown)
    node = (
        "name of this machine among servers that share a store: they take over each other's boxes on one node"
    )
    add("--node", default=default.node, help=node)
    scraped = "answer GET /metrics on HOST:PORT, without a token; off by default"
    add("--metrics", default="", metavar="HOST:PORT", help=scraped)
    add("--log-format", default="text", choices=["text", "json"], help="of the lines on standard error")
    bounds = (
        "TOML with what the machine holds and what each tenant may take; without it only the machine's size"
    )
    add("--quotas", default="", metavar="FILE", help=bounds)
    reach = "what RUN steps of an image's build may reach: the engine's default network, or none"
    add("--build-network", default="default", choices=["default", "none"], help=reach)
    add("--exit-with-parent", action="store_true", help="stop when stdin closes")
    folder = "at the end, remove the folder of the unix socket (embedded mode)"
    add("--remove-folder", action="store_true", help=folder)
    add("--log-level", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    values = vars(parser.parse_args(argv))
    level: str = values.pop("log_level")
    return ServerOptions(**values), level
