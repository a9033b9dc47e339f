"""Durations in JSON, in the one form that is documented. Used by `codec` before protobuf reads a message.

protobuf alone takes for one what Python takes for a number: blanks, signs, underscores, and the digits of any script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument

__all__ = ["check_durations"]

_DURATION = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?s")


def check_durations(found: Mapping[str, Any], message: Descriptor, path: str = "") -> None:
    """Check the durations in a message's JSON. Raise `InvalidArgument` for a text that is none, and leave the rest alone."""
    for name, value in found.items():
        field = message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)
        if field is None or field.message_type is None:
            continue
        kind, values = field.message_type, value if isinstance(value, list) else [value]
        if kind.GetOptions().map_entry:
            kind = kind.fields_by_name["value"].message_type
            values = list(value.values()) if kind is not None and isinstance(value, dict) else []
        for each in values:
            if kind.full_name != "google.protobuf.Duration":
                if isinstance(each, dict):
                    check_durations(each, kind, f"{path}{name}.")
            elif isinstance(each, str) and not _DURATION.fullmatch(each):
                raise InvalidArgument(
                    f"{path}{name} must be a number of seconds such as '90s' or '0.5s', got {shown(each)}"
                )
