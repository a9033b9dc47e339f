"""The table of routes and what is made of it: every call has one, none is ambiguous, and the description holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from rock_env.errors import InvalidArgument, one_line
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.app import _SERVICES
from rock_env.server.calls import shortened
from rock_env.server.interceptors.access import INSIDE
from rock_env.server.rest.codec import (
    dump,
    event_id,
    from_body,
    from_query,
    problem_body,
    resume_after,
    set_field,
)
from rock_env.server.rest.openapi import openapi
from rock_env.wire.rest_routes import FILES, ROUTES, Method, methods

METHODS = {method.name: method for method in methods()}


def test_every_call_of_every_service_has_a_route() -> None:
    services = [service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()]
    assert {service.full_name for service in services} >= set(_SERVICES), "add its file to rest_routes.FILES"
    calls = {f"{service.name}.{method.name}" for service in services for method in service.methods}
    assert calls - ROUTES.keys() == set(), "add a line to rest_routes.ROUTES"
    assert ROUTES.keys() - calls == set()


def test_no_two_calls_share_a_route() -> None:
    places = [(method.route.verb, method.starlette_path) for method in METHODS.values()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_route_names_fields_that_exist(method: Method) -> None:
    route = method.route
    for path in method.path_fields:
        set_field(method.request(), path, "1")
    assert set(route.required) <= set(method.input.fields_by_name)
    for event, request in route.ids.items():
        assert event in method.output.fields_by_name
        resume_after({event: request}, method.request(), "7")
    if route.raw:
        streamed = method.input if method.client_streaming else method.output
        assert streamed.fields_by_name[route.raw].type == streamed.fields_by_name[route.raw].TYPE_BYTES
    json_format.ParseDict(dict(route.example), method.request())


def test_a_sandboxs_own_token_may_make_calls_that_exist() -> None:
    assert {f"SandboxService.{name}" for name in INSIDE} <= METHODS.keys()
    outside = {"Create", "List", "Watch", "Delete", "Snapshot", "Fork", "Renew", "IssueToken"}
    assert not INSIDE & outside


def test_the_description_is_complete_and_refers_to_what_is_there() -> None:
    document = openapi(METHODS.values(), version="1", secured=True)
    text = json.dumps(document)
    schemas = document["components"]["schemas"]

    def refs(node: Any) -> set[str]:
        if isinstance(node, list):
            return {ref for item in node for ref in refs(item)}
        if isinstance(node, dict):
            own = {node["$ref"].rpartition("/")[2]} if "$ref" in node else set()
            return own | {ref for item in node.values() for ref in refs(item)}
        return set()

    assert refs(document) <= schemas.keys()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) == len(METHODS) == len({operation["operationId"] for operation in operations})
    assert schemas["SandboxState"]["enum"] == pb.SandboxState.keys()
    assert schemas["SandboxInfo"]["properties"]["revision"]["format"] == "uint64"
    assert schemas["CreateSandboxRequest"]["properties"]["lease"]["type"] == "string"
    create = document["paths"]["/v1/sandboxes"]["post"]
    assert create["requestBody"]["content"]["application/json"]["example"]["lease"] == "600s"
    step = document["paths"]["/v1/environments/{env_id}/step"]["post"]["requestBody"]["content"]
    assert step["application/json"]["schema"]["allOf"][1]["required"] == ["sequence", "idempotency_key"]
    assert '"http"' in text


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"leese": "1s"}', "leese"),
        (b'{"lease": 3}', "lease"),
        (b'{"spec": {"resources": {"cpus": "many"}}}', "cpus"),
        (b'{"labels": {"a": 1}}', "labels"),
        (b'{"spec": {"resources": {"pids": -1}}}', "pids"),
        (b'{"spec": {"ports": [8000]}}', 'no field named "ports"'),
        (b'{"spec": 3}', "spec"),
        (b'{"lease": "1s", "lease": "2s"}', "lease"),
        (b'{"idempotency_key": "\\ud800"}', "idempotency_key"),
        (b"[", "line 1"),
        (b"\xff", "utf-8"),
        (b"null", "NoneType"),
        (b'{"spec":' * 5000, "recursion"),
    ],
)
def test_a_bad_body_is_one_clear_error(body: bytes, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named) as caught:
        from_body(METHODS["SandboxService.Create"], body)
    assert "\n" not in caught.value.message
    assert caught.value.http == 400


def test_a_query_fills_every_kind_of_field() -> None:
    query = [
        *(("labels.team.a", "x"), ("states", "SANDBOX_STATE_RUNNING"), ("states", "4")),
        *(("pageSize", "7"), ("environment", "swe")),
    ]
    expected = pb.ListSandboxesRequest(
        labels={"team.a": "x"},
        states=[pb.SANDBOX_STATE_RUNNING, pb.SANDBOX_STATE_PAUSED],
        page_size=7,
        environment="swe",
    )
    assert from_query(METHODS["SandboxService.List"], query) == expected
    listed = from_query(METHODS["SandboxService.ListFiles"], [("recursive", "true"), ("path", "a b")])
    assert (listed.recursive, listed.path) == (True, "a b")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ([("pagesize", "1")], "unknown query parameter 'pagesize'"),
        ([("page_size", "x")], "page_size"),
        ([("page_size", "1"), ("page_size", "2")], "twice"),
        ([("labels", "x")], "labels.KEY"),
        ([("page_size.x", "1")], "page_size"),
        ([("states", "RUNNING")], "states"),
    ],
)
def test_a_bad_query_names_the_parameter(query: list[tuple[str, str]], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        from_query(METHODS["SandboxService.List"], query)


def test_path_and_body_must_agree() -> None:
    renew = METHODS["SandboxService.Renew"]
    message = from_body(renew, b'{"id": "a"}')
    set_field(message, "id", "a")
    with pytest.raises(InvalidArgument, match="'b' in the path and 'a' in the body"):
        set_field(message, "id", "b")


def test_ids_of_events_resume_where_they_stand() -> None:
    ids = METHODS["SandboxService.Exec"].route.ids
    reached: dict[str, int] = {}
    out = pb.ExecEvent(stdout=pb.OutputChunk(offset=3, data=b"abc"))
    assert event_id(ids, out, reached) == "6:0"
    assert event_id(ids, pb.ExecEvent(stderr=pb.OutputChunk(data=b"e")), reached) == "6:1"
    assert event_id(ids, pb.ExecEvent(exit=pb.ExecExit()), reached) == "6:1"
    request = pb.ExecRequest(start=pb.ExecStart(argv=["x"]))
    assert resume_after(ids, request, "6:1") == reached
    assert (request.start.stdout_offset, request.start.stderr_offset) == (6, 1)
    for wrong in ("6", "a:b", "-1:0", "1:99999999999999999999999", f"1:{'9' * 5000}", "9" * 5000):
        with pytest.raises(InvalidArgument, match="Last-Event-ID") as raised:
            resume_after(ids, request, wrong)
        assert len(raised.value.message) < 400


@pytest.mark.parametrize("digits", ["9" * 5000, "1" * 30, "-1", "٣", "1.5"])
def test_every_number_of_a_text_has_bounds(digits: str) -> None:
    """Python reads no number of more than 4,300 digits, and raises what is no error of ours."""
    port = METHODS["SandboxService.Expose"]
    with pytest.raises(InvalidArgument, match="whole number"):
        set_field(port.request(), "port", digits)
    with pytest.raises(InvalidArgument):
        from_query(METHODS["SandboxService.List"], [("page_size", digits)])
    with pytest.raises(InvalidArgument):
        from_body(METHODS["SandboxService.List"], f'{{"page_size": {digits}}}')


def test_a_folder_is_written_as_protobuf_would() -> None:
    plain = pb.FileStat(path='a "ü\n', size=2**40, mode=0o644, directory=True, symlink_target="x")
    timed = pb.FileStat(modified_at=Timestamp(seconds=5, nanos=7_000))
    for message in (pb.ListFilesResponse(files=[plain, timed]), pb.ListFilesResponse()):
        wanted = MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        assert json.loads(dump(message)) == wanted


def test_an_error_is_one_short_line() -> None:
    for text in ("x" * 100_000, "é\n" * 50_000, "first\n\n  second\r\n"):
        for said in (problem_body(InvalidArgument(text))["message"], shortened(text)):
            assert said
            assert len(said) < 1500
            assert "\n" not in said
    assert one_line("first\n\n  second\r\n") == "first second"
    assert one_line("got " + "x" * 9000 + " expected y").endswith("expected y"), "the remedy stays"


def test_json_says_what_is_there_and_what_is_absent() -> None:
    said = json.loads(dump(pb.ExecExit(exit_code=0)))
    assert said["exit_code"] == 0
    assert "signal" not in said, "an absent field is not a zero"
    assert said["timed_out"] is False
