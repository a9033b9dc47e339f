"""What an operator may set when starting a server, by `python -m rock_env.server` or `ale rock serve`.

Used by `server/app.py` and the command line. It checks what can be checked without touching the system.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rock_env.channel import is_local, is_tls, target
from rock_env.errors import InvalidArgument

__all__ = ["Isolation", "ServerOptions", "parse"]

Isolation = Literal["auto", "bubblewrap", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of one server; each is documented by the command line's help."""

    listen: str = "127.0.0.1:8120"
    tokens: str = ""
    insecure: bool = False
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    workers: int = 0
    idle_timeout_s: float = 1800.0
    step_timeout_s: float = 60.0
    sandbox_timeout_s: float = 600.0
    hang_grace_s: float = 5.0
    drain_s: float = 2.0
    env: Sequence[str] = ()
    store: str = ""
    isolation: Isolation = "auto"
    exit_with_parent: bool = False
    remove_folder: bool = False

    @property
    def tls(self) -> bool:
        """Return whether the server speaks TLS."""
        return bool(self.cert)

    @property
    def sandbox_isolation(self) -> Isolation:
        """Return how sandboxes are fenced: among tenants a box without a fence is not a fallback, it is a leak."""
        return "bubblewrap" if self.tokens and self.isolation == "auto" else self.isolation

    def check(self) -> None:
        """Raise `InvalidArgument` for options that contradict each other, or that leave a door open."""
        unix = target(self.listen).startswith("unix:")
        if bool(self.cert) != bool(self.key):
            raise InvalidArgument(f"TLS needs both --cert and --key: got {self.cert!r} and {self.key!r}.")
        if self.client_ca and not self.tls:
            raise InvalidArgument(
                "--client-ca checks clients' certificates over TLS: give --cert and --key too."
            )
        if self.insecure and (self.tokens or self.tls):
            raise InvalidArgument("--insecure means no tokens and no TLS: leave it out, or leave those out.")
        if unix and (self.tls or self.insecure):
            raise InvalidArgument(
                "a unix socket takes neither TLS nor --insecure: its file's owner alone may connect."
            )
        if is_tls(self.listen) and not self.tls:
            raise InvalidArgument(f"{self.listen} asks for TLS: give --cert and --key.")
        if not unix:
            self._check_network()

    def _check_network(self) -> None:
        local = is_local(self.listen)
        if self.insecure and not local:
            raise InvalidArgument(
                f"--insecure is for loopback addresses, got {self.listen}: whoever reached it could run code here. "
                "Give --tokens, --cert and --key instead."
            )
        if not self.tokens and not self.insecure:
            raise InvalidArgument(
                f"will not serve {self.listen} without tokens: whoever reached it could run code here. Give --tokens "
                "(ale rock token create makes them)"
                + (", or --insecure to serve every user of this machine." if local else ".")
            )
        if self.tokens and not local and not self.tls:
            raise InvalidArgument(
                f"will not take tokens at {self.listen} in clear text. Give --cert and --key, or listen on a loopback "
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
        "drain-s": "how long running calls may take to finish when the server stops",
    }
    for name, meaning in seconds.items():
        add(f"--{name}", type=float, default=getattr(default, name.replace("-", "_")), help=meaning)
    offered = "also offer this EnvSpec (or FILE.py:OBJECT)"
    add("--env", action="append", default=[], metavar="MODULE:OBJECT", help=offered)
    isolation = (
        "of process sandboxes; auto: bubblewrap, or none where it does not work and --tokens is not given"
    )
    add("--isolation", default="auto", choices=["auto", "bubblewrap", "none"], help=isolation)
    kept = "SQLite file for the records of sandboxes, made if absent; without it they are kept in memory"
    add("--store", default="", metavar="FILE", help=kept)
    add("--exit-with-parent", action="store_true", help="stop when stdin closes")
    folder = "at the end, remove the folder of the unix socket (embedded mode)"
    add("--remove-folder", action="store_true", help=folder)
    add("--log-level", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    values = vars(parser.parse_args(argv))
    level: str = values.pop("log_level")
    return ServerOptions(**values), level
