"""Which tenant asks: a pass in the URL that its boxes are given, and the variables by which their tools find the mirror.

A pass opens the mirror and nothing else; it holds as long as the cache's folder does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from rock_env.errors import Unauthenticated

__all__ = ["BoxPasses", "variables"]

_PASS = re.compile(r"([0-9a-f]{32})-([a-z0-9._-]{0,63})", re.ASCII)
_SLOW_S = "120"
"""How long pip and uv wait: a file is sent once all of it came and was checked."""


class BoxPasses:
    """Makes passes and reads them, by a secret of the server's."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, tenant: str) -> str:
        """Return the pass of a tenant."""
        made = hmac.new(self._secret, b"rock packages " + tenant.encode(), hashlib.sha256)
        return f"{made.hexdigest()[:32]}-{tenant}"

    def tenant(self, shown: str) -> str:
        """Return whose pass this is. Raise `Unauthenticated`."""
        matched = _PASS.fullmatch(shown)
        if matched is None or not hmac.compare_digest(self.of(matched[2]), shown):
            raise Unauthenticated("this URL's pass is not one of the package mirror's")
        return matched[2]


def variables(url: str, host: str, offered: Iterable[str]) -> Mapping[str, str]:
    """Return what tells the tools of a box of a mirror at `url` with these sources."""
    told: dict[str, dict[str, str]] = {
        "pypi": {
            "PIP_INDEX_URL": f"{url}/pypi/simple/",
            "PIP_TRUSTED_HOST": host,
            "PIP_DEFAULT_TIMEOUT": _SLOW_S,
            "UV_DEFAULT_INDEX": f"{url}/pypi/simple/",
            "UV_HTTP_TIMEOUT": _SLOW_S,
        },
        "npm": {
            "npm_config_registry": f"{url}/npm/",
            "npm_config_audit": "false",  # asks the registry by POST
            "npm_config_update_notifier": "false",
        },
        "debian": {"ROCK_DEBIAN_URL": f"{url}/debian"},
    }
    return {name: value for source in offered for name, value in told[source].items()}
