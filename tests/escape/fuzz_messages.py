"""Requests nobody should send: valid messages of every call, made from the descriptors, and then spoiled.

A case is made from a seed and the ids of real things, so a failing one can be made again. Nothing is sent here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from rock_env.wire.rest_routes import Method

__all__ = ["PATHS", "UNKNOWN", "GrpcCase", "Known", "Maker", "anybody", "grpc_case"]

INTEGERS = (-(2**63), -(2**31), -1, 0, 1, 2, 7, 4096, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
DOUBLES = (math.nan, math.inf, -math.inf, -1.0, -0.0, 0.0, 1e-320, 0.5, 1.0, 3.0, 1e300)
PATHS = (
    *(
        "",
        ".",
        "/",
        "f",
        "new/f",
        "..",
        "../../../../etc/passwd",
        "/etc/passwd",
        "/proc/1/environ",
        "/proc/self/mem",
    ),
    *("/dev/zero", "a\0b", "~", "//", "f/..", "x/" * 3000, "n" * 300, "/opt/rock/run", "é\u202e", "-rf", "*"),
)
TEXTS = (
    *(
        "",
        "a",
        "k-1",
        "train/0",
        "nope",
        "\0",
        "\n\r",
        "é\u202e\U0001f4a9",
        "'; DROP TABLE sandboxes; --",
        "../..",
        "%00",
    ),
    *(
        "${jndi:x}",
        "{}",
        "[]",
        '{"prefix": 1}',
        '{"a":' * 500,
        "NaN",
        "-1",
        "x" * 1024,
        "/",
        "//",
        "\x7f",
        "true",
    ),
)
COMMANDS = (
    *(
        ["true"],
        ["echo", "hi"],
        ["false"],
        [],
        [""],
        ["nope"],
        ["a\0b"],
        ["sh"],
        ["cat"],
        ["/"],
        ["sleep", "0.01"],
    ),
    *(["x" * 5000], ["echo"] * 3000, ["sh", "-c", "exit 7"], ["sh", "-c", "kill -9 $$"], ["-"], ["\n"]),
)
IMAGES = (
    "",
    "",
    "",
    "",
    "nope:1",
    "sha256:" + "0" * 64,
    "../x",
    "UPPER",
    "a b",
    "x" * 500,
    "--privileged",
    "host/x@y",
)
GRANTED = ("sandbox", "sandbox", "sandbox", "sandbox", "admin", "stranger")
UNKNOWN = ("none", "wrong", "malformed")
"""Who has no token, one that nobody gave out, and one that is none."""


@dataclass(frozen=True)
class Known:
    """Real ids that cases may name: the caller's own, those that may be lost, and those of somebody else."""

    own: Mapping[str, Sequence[str]]
    doomed: Mapping[str, Sequence[str]]
    others: Mapping[str, Sequence[str]]

    def pick(self, random: Random, kind: str, *, harmful: bool) -> str:
        """Return an id: mostly a real one, for a call that ends things one that may be lost."""
        mine = (self.doomed if harmful else self.own).get(kind, ())
        pools = (mine, mine, mine, self.others.get(kind, ()), TEXTS, PATHS)
        chosen = random.choice(pools)
        return random.choice(chosen) if chosen else random.choice(TEXTS)


HARMFUL = frozenset(
    {
        "Delete",
        "Pause",
        "Restore",
        "CloseSession",
        "DeleteSnapshot",
        "Close",
        "CloseMany",
        "SignalProcess",
        "Renew",
    }
)
IDS = {
    "sandbox_id": "sandbox",
    "snapshot_id": "snapshot",
    "session_id": "session",
    "process_id": "process",
    "env_id": "env",
    "checkpoint_id": "checkpoint",
    "build_id": "build",
}


@dataclass
class Maker:
    """Fills messages of one call with what is valid, odd, or somebody else's."""

    random: Random
    known: Known
    call: str
    room: int = 1 << 16
    """Longest text. A few cases get more."""

    def message(self, descriptor: Descriptor, depth: int = 0) -> Any:
        """Return a message with most of its fields set."""
        made = GetMessageClass(descriptor)()
        chosen = {oneof.name: self.random.choice(oneof.fields).name for oneof in descriptor.oneofs}
        for each in descriptor.fields:
            oneof = each.containing_oneof
            if oneof is not None and chosen[oneof.name] != each.name:
                continue
            if self.random.random() < (0.15 if depth > 1 else 0.35) and not each.name.endswith("id"):
                continue
            self._set(made, each, depth)
        return made

    def _set(self, made: Any, each: FieldDescriptor, depth: int) -> None:
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            for _ in range(self.random.choice((0, 1, 2, 60))):
                getattr(made, each.name)[self._text("key")] = self._text("value")
        elif each.name == "argv":
            made.argv.extend(self.random.choice(COMMANDS))
        elif each.is_repeated:
            for _ in range(self.random.choice((0, 1, 2, 3, 3, 40)) if depth < 2 else 1):
                if each.message_type is not None:
                    getattr(made, each.name).append(self.message(each.message_type, depth + 1))
                else:
                    getattr(made, each.name).append(self._scalar(each))
        elif each.message_type is not None:
            getattr(made, each.name).CopyFrom(self.message(each.message_type, depth + 1))
        else:
            setattr(made, each.name, self._scalar(each))

    def _scalar(self, each: FieldDescriptor) -> Any:
        kind, random = each.cpp_type, self.random
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if each.type == FieldDescriptor.TYPE_BYTES:
                return random.randbytes(random.choice((0, 1, 100, self.room)))
            return self._text(each.name, each.containing_type.name)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return random.choice((0, 1, 2, 3, 99, -1, 2**31 - 1))
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return random.choice(DOUBLES)
        low, high = _RANGES[kind]
        small = (0, 1, 1, 2, 3) if each.name in ("count", "size", "seconds", "sequence") else INTEGERS
        return random.choice(
            [number for number in (*small, random.choice(INTEGERS)) if low <= number <= high]
        )

    def _text(self, name: str, message: str = "") -> str:
        random = self.random
        if random.random() < 0.02:
            return random.choice("ab\n/é") * random.randrange(self.room)
        if name == "id":
            kind = "snapshot" if "Snapshot" in message and message != "SnapshotSandboxRequest" else "sandbox"
            return self.known.pick(random, kind, harmful=self.call in HARMFUL)
        if name in IDS:
            return self.known.pick(random, IDS[name], harmful=self.call in HARMFUL)
        if name in ("path", "cwd", "workdir", "dockerfile", "page_token"):
            return random.choice(PATHS)
        if name in ("image", "runtime"):
            return random.choice(IMAGES)
        if name == "env":
            return random.choice(("toy", "toy_box", "toy", *TEXTS))
        if name == "idempotency_key":
            return random.choice(("", "", *TEXTS))
        return random.choice(TEXTS)


_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


# -- gRPC


@dataclass(frozen=True)
class GrpcCase:
    """One call: its messages as bytes, whether it says that there are no more, and as whom."""

    number: int
    method: Method
    messages: tuple[bytes, ...]
    ends: bool
    who: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(f"{message[:60]!r}({len(message)})" for message in self.messages[:3])
        return f"#{self.number} gRPC {self.method.name} as {self.who} [{shown}] ends={self.ends}"


def _wire_tag(number: int, kind: int) -> bytes:
    value, written = number << 3 | kind, bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _spoiled_bytes(random: Random, good: bytes) -> bytes:
    """Return bytes near those of a message."""
    at = random.randrange(len(good) + 1)
    ways: Sequence[Callable[[], bytes]] = (
        lambda: good[:at],
        lambda: good[:at] + random.randbytes(random.choice((1, 2, 16))) + good[at:],
        lambda: (
            good[:at]
            + bytes(byte ^ random.choice((1, 0x80, 0xFF)) for byte in good[at : at + 2])
            + good[at + 2 :]
        ),
        lambda: random.randbytes(random.choice((1, 3, 64, 2000))),
        lambda: (
            good
            + _wire_tag(random.randrange(1, 6), random.choice((0, 1, 2, 3, 5, 6, 7)))
            + random.randbytes(9)
        ),
        lambda: good + _wire_tag(random.randrange(1, 6), 2) + b"\x04\xff\xfe\xfd\xfc",  # not UTF-8
        lambda: (
            good + _wire_tag(random.randrange(1, 6), 2) + b"\xff\xff\xff\xff\x0f"
        ),  # 4 GiB are said to follow
        lambda: _wire_tag(1, 3) * random.choice((50, 150, 20_000)),  # groups in groups
        lambda: b"\xff" * random.choice((1, 10, 11, 400)),  # a number that does not end
        lambda: good + good,
    )
    return random.choice(ways)()


def _headers(random: Random) -> tuple[tuple[str, str | bytes], ...]:
    if random.random() > 0.06:
        return ()
    return random.choice(
        (
            (("x-junk", "x" * random.choice((100, 3000))),),
            (("x-junk-bin", random.randbytes(200)),),
            (("traceparent", random.choice(("", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 200))),),
            (("tracestate", "a=b," * 100),),
            (("rock-timeout-s", "NaN"),),
            tuple((f"x-{number}", "y") for number in range(50)),
        )
    )


def anybody(random: Random) -> str:
    """Choose who calls: half of the time somebody whom the server does not know."""
    return random.choice(UNKNOWN if random.random() < 0.5 else GRANTED)


def caller_of(random: Random, method: Method) -> str:
    """Choose who calls. Nobody who may ends the server: that is what Drain is for."""
    who = anybody(random)
    if who in UNKNOWN:
        return who
    if method.service != "AdminService":
        return who
    return "sandbox" if method.name.endswith(".Drain") else random.choice(("admin", "admin", "sandbox"))


def grpc_case(number: int, seed: int, methods: Sequence[Method], known: Known) -> GrpcCase:
    """Make one call over gRPC; every method in turn."""
    random = Random(f"{seed}:grpc:{number}")
    method = methods[number % len(methods)]
    count = random.choice((0, 1, 1, 1, 2, 3, 8)) if method.client_streaming else 1
    room = 1 << 21 if random.random() < 0.01 else 1 << 14
    maker = Maker(random, known, method.name.partition(".")[2], room)
    messages = []
    for _ in range(count):
        good = maker.message(method.input).SerializeToString()
        messages.append(good if random.random() < 0.5 else _spoiled_bytes(random, good))
    who = caller_of(random, method)
    ends = not method.client_streaming or random.random() < 0.8
    return GrpcCase(number, method, tuple(messages), ends, who, _headers(random))
