"""What a failed gRPC call stands for: a broken connection is `Unavailable` and sent again, a bug of the server is not."""

from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from rock_env.client.retry import rock_error
from rock_env.errors import InfraError, NotFound, Unavailable


def failed(code: grpc.StatusCode, details: str, **metadata: str) -> AioRpcError:
    trailing = Metadata(*((key.replace("_", "-"), value) for key, value in metadata.items()))
    return AioRpcError(code, Metadata(), trailing, details=details)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Socket closed"),
        (grpc.StatusCode.CANCELLED, "CANCELLED"),
        (
            grpc.StatusCode.INTERNAL,
            "Internal error from Core",
        ),  # as gRPC's client words a cut while a call opens
    ],
)
def test_a_broken_connection_is_unavailable(code: grpc.StatusCode, details: str) -> None:
    error, answered = rock_error(failed(code, details), "here:1")
    assert type(error) is Unavailable
    assert not answered
    assert details in str(error)


def test_an_internal_error_of_the_server_is_no_broken_connection() -> None:
    error, _ = rock_error(failed(grpc.StatusCode.INTERNAL, "KeyError: 'x'"), "here:1")
    assert type(error) is InfraError


def test_what_the_server_said_is_taken_from_its_own_code() -> None:
    error, answered = rock_error(
        failed(grpc.StatusCode.NOT_FOUND, "no sandbox", rock_error_code="not_found"), "here:1"
    )
    assert type(error) is NotFound
    assert answered
