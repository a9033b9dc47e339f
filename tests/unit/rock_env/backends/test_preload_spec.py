"""What a spec says of modules imported ahead: part of what it is, and carried by the wire."""

from __future__ import annotations

from rock_env.spec import SandboxSpec
from rock_env.wire.sandboxes import sandbox_spec, spec_message


def test_a_spec_without_preload_keeps_its_digest() -> None:
    assert SandboxSpec().digest != SandboxSpec(preload=("pytest",)).digest
    assert SandboxSpec().digest == "462b572fe5153223"


def test_the_wire_carries_the_modules_in_their_order() -> None:
    spec = SandboxSpec(preload=("pytest", "_pytest.unittest"))
    assert sandbox_spec(spec_message(spec)) == spec
