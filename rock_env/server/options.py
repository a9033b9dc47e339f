"""What an operator may set when starting a server, by `python -m rock_env.server` or `ale rock serve`.

Each option stands here once, with its type, default and help. It checks what can be checked without touching the system, and
imports nothing heavy: the command line's help reads it.
"""

from __future__ import annotations

import argparse
import ipaddress
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from rock_env.backends.base import Isolation
from rock_env.errors import InvalidArgument
from rock_env.store.address import is_postgres
from rock_env.wire.channel import is_local, is_rest, is_tls, target

__all__ = ["BuildNetwork", "LogLevel", "ServerOptions", "parse"]

BuildNetwork = Literal["default", "none"]
_LEAST_LEASE_S = 0.5
"""A server under load does not come to renew more often."""
LogFormat = Literal["text", "json"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


OFFERED = ("process", "docker")
"""The backends of a server whose operator asked for none by name."""


def _told(text: str, metavar: str = "", *, least: float | None = None, own: bool = False) -> dict[str, Any]:
    """Return what a command line says of an option. `ale rock serve` does not offer the server's `own`."""
    return {"help": text, "metavar": metavar, "least": least, "own": own}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of one server, for `python -m rock_env.server` and `ale rock serve` alike."""

    listen: str = field(
        default="127.0.0.1:8120", metadata=_told("host:port (port 0: any) or unix:///path.", "ADDRESS")
    )
    http: str = field(
        default="",
        metadata=_told(
            "Also serve REST, /openapi.json and /docs here, over the same TLS (port 0: any); its URL is printed second.",
            "HOST:PORT",
        ),
    )
    http_url: str = field(
        default="",
        metadata=_told(
            "Where clients reach --http, if elsewhere; `*` for a name per exposed port (https://*.boxes.example.org).",
            "URL",
        ),
    )
    tokens: str = field(default="", metadata=_told("Who may call (ale rock token create).", "FILE"))
    insecure: bool = field(default=False, metadata=_told("Neither tokens nor TLS; loopback addresses only."))
    cert: str = field(default="", metadata=_told("TLS: the server's certificate chain, PEM.", "FILE"))
    key: str = field(default="", metadata=_told("TLS: its key without a passphrase, PEM.", "FILE"))
    client_ca: str = field(
        default="", metadata=_told("mTLS: only clients this CA signed may connect.", "FILE")
    )
    workers: int = field(default=0, metadata=_told("Env-host processes; 0 is one per CPU.", least=0))
    idle_timeout_s: float = field(
        default=1800.0, metadata=_told("Close what nobody used for so long.", least=0.1)
    )
    step_timeout_s: float = field(
        default=60.0, metadata=_told("Longest call on an env in a worker.", own=True)
    )
    sandbox_timeout_s: float = field(
        default=600.0, metadata=_told("Longest call on an env in a sandbox.", own=True)
    )
    most_environments: int = field(
        default=10_000, metadata=_told("Environments of one tenant at once.", "N", least=1)
    )
    most_snapshots: int = field(
        default=10_000, metadata=_told("Snapshots of one tenant at once.", "N", least=1)
    )
    most_snapshot_bytes: int = field(
        default=100 << 30, metadata=_told("What one tenant's snapshots may hold.", "BYTES", least=1)
    )
    hang_grace_s: float = field(default=5.0, metadata=_told("Then a worker that hangs is killed.", own=True))
    drain_s: float = field(
        default=2.0,
        metadata=_told("How long running calls may take to finish when the server stops.", least=0.0),
    )
    env: Sequence[str] = field(
        default=(), metadata=_told("Also offer this EnvSpec (or FILE.py:OBJECT).", "MODULE:OBJECT")
    )
    data: Sequence[str] = field(
        default=(),
        metadata=_told(
            "A file or folder that arguments of environments may name, as NAME; without it callers may name none.",
            "NAME=PATH",
        ),
    )
    backend: Sequence[str] = field(
        default=(),
        metadata=_told(
            "Host sandboxes on this installed backend, the first of several that takes a spec first; without it on "
            f"{' and '.join(OFFERED)}.",
            "NAME[:KEY=VALUE,…]",
        ),
    )
    worker_memory_gib: float = field(
        default=4.0, metadata=_told("What one env-host process may allocate.", "GIB", least=0.1)
    )
    state: str = field(
        default="",
        metadata=_told(
            "Folder for records, boxes and snapshots, made if absent: sandboxes then outlive the server, and the next one "
            "takes them up again; without it they end with the server.",
            "DIR",
        ),
    )
    store: str = field(
        default="",
        metadata=_told(
            "SQLite file for the records of sandboxes, made if absent, or postgresql://user@host:port/database, which "
            "several servers may share; without it they are in the folder --state, or in memory.",
            "FILE|URL",
        ),
    )
    shelf: str = field(
        default="",
        metadata=_told(
            "Folder that every sandbox sees, read-only, as /opt/shelf (ale agent install); commands find it by ROCK_SHELF.",
            "DIR",
        ),
    )
    quotas: str = field(
        default="",
        metadata=_told(
            "TOML with what the machine holds and what each tenant may take; without it only the machine's size.",
            "FILE",
        ),
    )
    build_network: BuildNetwork = field(
        default="default",
        metadata=_told(
            "What RUN steps of an image's build may reach: the engine's default network, or none."
        ),
    )
    node: str = field(
        default=platform.node(),
        metadata=_told(
            "Name of this machine among servers that share a store: they take over each other's boxes on one node.",
            "NAME",
        ),
    )
    peers: str = field(
        default="",
        metadata=_told(
            "Where the other servers of the store reach this one over the network, by certificates of the store's own; "
            "without it by a socket in --state, so on this machine alone.",
            "HOST:PORT",
        ),
    )
    replica_lease_s: float = field(
        default=10.0,
        metadata=_told("After so long without a sign of life, servers that share the store take over."),
    )
    isolation: Isolation = field(
        default="auto",
        metadata=_told(
            "Of process sandboxes and workers. auto: namespaces, or none where they do not work and there are no --tokens."
        ),
    )
    trust_libraries: bool = field(
        default=False,
        metadata=_told(
            "Let hosted libraries (gem:, gym:) run as other environments do, also without a fence."
        ),
    )
    metrics: str = field(
        default="", metadata=_told("Answer GET /metrics there, without a token, for Prometheus.", "HOST:PORT")
    )
    packages: str = field(
        default="",
        metadata=_told(
            "Serve packages to boxes that ask for them, there: an IPv4 address of this machine that boxes reach, such as "
            "the engine's bridge.",
            "HOST:PORT",
        ),
    )
    packages_cache: str = field(
        default="",
        metadata=_told(
            "Folder for the packages; without it they are in the folder --state, or end with the server.",
            "DIR",
        ),
    )
    packages_gib: float = field(default=50.0, metadata=_told("Packages kept.", "GIB", least=0.001))
    packages_pypi: str = field(
        default="https://pypi.org/simple,https://files.pythonhosted.org",
        metadata=_told(
            "Where PyPI's packages come from, and other origins of its files; '' for none.", "URL[,URL…]"
        ),
    )
    packages_npm: str = field(
        default="https://registry.npmjs.org",
        metadata=_told("Where npm's packages come from; '' for none.", "URL"),
    )
    packages_debian: str = field(
        default="https://deb.debian.org",
        metadata=_told("Where Debian's archives (debian, debian-security) come from; '' for none.", "URL"),
    )
    log_format: LogFormat = field(default="text", metadata=_told("Of the lines on standard error."))
    exit_with_parent: bool = field(default=False, metadata=_told("Stop when stdin closes.", own=True))
    remove_folder: bool = field(
        default=False,
        metadata=_told("At the end, remove the folder of the unix socket (embedded mode).", own=True),
    )

    @property
    def tls(self) -> bool:
        """Return whether the server speaks TLS."""
        return bool(self.cert)

    @property
    def backends(self) -> Sequence[str]:
        """Return the backends that were asked for, the first that hosts a spec first; else those that come with ROCK."""
        return self.backend or OFFERED

    @property
    def sandbox_isolation(self) -> Isolation:
        """Return how sandboxes are fenced: among tenants a box without a fence is not a fallback, it is a leak."""
        return "namespaces" if self.tokens and self.isolation == "auto" else self.isolation

    @property
    def worker_fence(self) -> Literal["always", "where possible", "never"]:
        """Return which workers are fenced in, beside those of hosted libraries; of a private server none by itself."""
        if self.sandbox_isolation == "namespaces":
            return "always"
        return "never" if self.private or self.isolation == "none" else "where possible"

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
        self._check_peers()
        if not self.replica_lease_s >= _LEAST_LEASE_S:
            raise InvalidArgument(
                f"--replica-lease-s must be at least {_LEAST_LEASE_S:g}, got {self.replica_lease_s:g}."
            )
        self._check_packages()
        for listen in (() if unix else (self.listen,)) + ((self.http,) if self.http else ()):
            self._check_network(listen)

    def _check_peers(self) -> None:
        if is_postgres(self.store) and not self.state and not self.peers:
            raise InvalidArgument(
                "a PostgreSQL store is for servers that take over from each other: give --state DIR, a folder that all "
                "those on this machine share, or --peers HOST:PORT for servers without boxes of their own."
            )
        if not self.peers:
            return
        if not is_postgres(self.store):
            raise InvalidArgument("--peers is for servers that share a store: give --store postgresql://….")
        plain = target(self.peers)
        host, _, port = plain.rpartition(":")
        try:
            everywhere = ipaddress.ip_address(host.strip("[]")).is_unspecified
        except ValueError:
            everywhere = False
        if plain.startswith("unix:") or plain != self.peers or everywhere or not int(port):
            raise InvalidArgument(
                f"--peers is told to other servers: got {self.peers!r}, expected the host or IP address of this machine "
                "and a port that is free, such as 10.0.0.5:8123."
            )

    def _check_packages(self) -> None:
        if not self.packages:
            return
        host, _, port = self.packages.rpartition(":")
        try:
            usable = not ipaddress.IPv4Address(host).is_unspecified
        except ValueError:
            usable = False
        if not (usable and port.isascii() and port.isdecimal() and int(port[:6]) < 1 << 16):
            raise InvalidArgument(
                f"--packages expects the IPv4 address and port at which boxes reach this machine, got {self.packages!r}; "
                "with Docker that is an address of its bridge, such as 172.17.0.1:8125."
            )
        if not self.packages_gib > 0:
            raise InvalidArgument(f"--packages-gib must be above 0, got {self.packages_gib:g}.")
        for name in ("pypi", "npm", "debian"):
            urls = getattr(self, f"packages_{name}")
            if urls and not all(is_rest(url) and _is_host_alone(url) for url in urls.split(",")):
                raise InvalidArgument(
                    f"--packages-{name} expects http://… or https://… with a host and without a user, whose password boxes "
                    "would be told in errors."
                )

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


def _is_host_alone(url: str) -> bool:
    """Return whether a URL names a host, with a port or not, and no user."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # of the port
        return False


def parse(argv: Sequence[str] | None) -> tuple[ServerOptions, LogLevel]:
    """Return the options in `argv` (None: the process's own) and the log level; exit on a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m rock_env.server", description="Serve environments over gRPC."
    )
    hints = get_type_hints(ServerOptions)
    for option in fields(ServerOptions):
        kind, default = hints[option.name], option.default
        how: dict[str, Any] = {"type": kind, "default": default}
        if kind is bool:
            how = {"action": "store_true"}
        elif get_origin(kind) is Literal:
            how = {"choices": get_args(kind), "default": default}
        elif get_origin(kind) is not None:
            how = {"action": "append", "default": []}
        if option.metadata["metavar"]:
            how["metavar"] = option.metadata["metavar"]
        parser.add_argument(f"--{option.name.replace('_', '-')}", help=option.metadata["help"], **how)
    parser.add_argument("--log-level", default="WARNING", choices=get_args(LogLevel))
    values = vars(parser.parse_args(argv))
    level: LogLevel = values.pop("log_level")
    return ServerOptions(**values), level
