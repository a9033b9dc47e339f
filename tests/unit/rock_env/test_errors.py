"""The error tree crosses processes and the wire unchanged."""

from __future__ import annotations

import pickle

import grpc
import pytest

from rock_env.errors import (
    CODES,
    InfraError,
    InvalidArgument,
    RockError,
    UnknownName,
    did_you_mean,
    from_code,
    listed,
    nearest,
)


@pytest.mark.parametrize("kind", CODES.values(), ids=CODES)
def test_every_error_survives_pickling_and_its_code(kind: type[RockError]) -> None:
    error = kind("what happened", retry_after_s=1.5)
    for copy in (pickle.loads(pickle.dumps(error)), from_code(kind.code, "what happened", retry_after_s=1.5)):
        assert type(copy) is kind
        assert str(copy) == "what happened"
        assert copy.retry_after_s == 1.5


@pytest.mark.parametrize("kind", CODES.values(), ids=CODES)
def test_every_error_names_a_grpc_status_and_fails_the_shell(kind: type[RockError]) -> None:
    assert grpc.StatusCode[kind.grpc] is not grpc.StatusCode.OK
    assert 1 <= kind.exit_code <= 125
    assert 400 <= kind.http <= 599


def test_codes_are_unique_and_every_class_is_listed() -> None:
    def tree(kind: type[RockError]) -> set[type[RockError]]:
        return {kind}.union(*(tree(child) for child in kind.__subclasses__()))

    ours = {kind for kind in tree(RockError) if kind.__module__ == "rock_env.errors"}
    assert set(CODES.values()) == ours
    assert len({kind.code for kind in ours}) == len(ours)


def test_an_unknown_code_is_quoted() -> None:
    error = from_code("from_the_future", "boom")
    assert isinstance(error, InfraError)
    assert "from_the_future" in str(error)
    assert "boom" in str(error)


def test_errors_are_their_standard_kin() -> None:
    with pytest.raises(ValueError, match="x"):
        raise InvalidArgument("x")
    with pytest.raises(LookupError, match="x"):
        raise UnknownName("x")


def test_nearest_names_the_near_and_all() -> None:
    message = str(nearest("colour", "gren", ["red", "green"]))
    assert message == "unknown colour 'gren'. Did you mean 'green'? Known: green, red"
    assert "Did you mean" not in str(nearest("colour", "zzz", ["red"]))


def test_only_a_name_that_is_near_is_suggested() -> None:
    assert "Did you mean" not in str(nearest("environment", "zzz", ["frozen_lake", "sokoban"]))


def test_of_many_names_the_first_are_listed_and_the_rest_counted() -> None:
    names = [f"env_{index:03}" for index in range(1000)]
    said = str(nearest("environment", "env_99", names))
    assert said.endswith("env_039, and 960 more")
    assert "Did you mean 'env_99" in said
    assert listed([]) == "(none)"


def test_the_name_that_the_fewest_edits_lead_to_is_meant() -> None:
    assert "'grpo'" in did_you_mean("gpro", ["dapo", "gspo", "grpo", "ppo"])
    assert did_you_mean("qqqq", ["grpo"]) == ""
