"""The attacks of three rounds that were written from the documentation alone, by name.

Those on servers are functions of the site, as the others in `attacks`; those on commands need none and are given it all the
same.
"""

from __future__ import annotations

from collections.abc import Mapping

from attacks import Attack
from attacks_round_1 import COMMAND_LINE_1, ROUND_1
from attacks_round_2 import PAPERS, ROUND_2
from attacks_round_3 import ROUND_3

__all__ = ["ON_COMMANDS", "ON_SERVERS"]

ON_COMMANDS: Mapping[str, Attack] = {**COMMAND_LINE_1, **PAPERS}
ON_SERVERS: Mapping[str, Attack] = {
    name: attack for name, attack in {**ROUND_1, **ROUND_2, **ROUND_3}.items() if name not in ON_COMMANDS
}
