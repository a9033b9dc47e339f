"""Values and messages that name their fields the same: what a node holds, there and back, and what clients are told."""

from __future__ import annotations

import pickle

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rock_env.client.registry import Image
from rock_env.client.sandbox.types import FileInfo, SnapshotInfo, file_info, sandbox_info, snapshot_info
from rock_env.inventory import BackendCensus, CollectedImage, Limits, PoolStatus, TenantPlaces
from rock_env.lifecycle import SandboxState, StateChange
from rock_env.proto.v1 import registry_pb2, sandbox_pb2
from rock_env.snapshots import SnapshotState
from rock_env.spec import SandboxSpec
from rock_env.wire import inventory
from rock_env.wire.fields import read, written

COUNT = st.integers(0, 1 << 31)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TEXTS, PAIRS = st.lists(TEXT, max_size=3).map(tuple), st.dictionaries(TEXT, TEXT, max_size=3)
BOUNDS = st.builds(Limits, *(st.none() | COUNT for _ in range(3)))
WAYS = {
    "census": (
        st.builds(BackendCensus, TEXT, COUNT, COUNT, COUNT, PAIRS, PAIRS, COUNT, TEXTS, TEXTS, TEXT),
        inventory.census_message,
        inventory.backend_census,
    ),
    "limits": (BOUNDS, inventory.limits_message, inventory.limits),
    "tenant": (
        st.builds(TenantPlaces, TEXT, BOUNDS, BOUNDS, COUNT, st.floats(0, 9)),
        inventory.tenant_message,
        inventory.tenant_places,
    ),
    "pool": (
        st.builds(
            PoolStatus,
            *(TEXT, TEXT, st.builds(SandboxSpec, image=TEXT, preload=TEXTS)),
            *(COUNT for _ in range(7)),
            *(TEXT, st.floats(0, 9), st.booleans()),
        ),
        inventory.pool_message,
        inventory.pool_status,
    ),
    "image": (
        st.builds(CollectedImage, TEXT, COUNT, TEXTS, st.integers(0, 1 << 31).map(float), TEXT),
        inventory.image_message,
        inventory.collected_image,
    ),
}


@pytest.mark.parametrize("kind", WAYS)
def test_there_and_back(kind: str) -> None:
    values, write, read = WAYS[kind]

    @given(values)
    def keeps(value: object) -> None:
        found = read(type(write(value)).FromString(write(value).SerializeToString()))
        assert pickle.loads(pickle.dumps(found)) == value, "in plain tuples and dicts"

    keeps()


AT = Timestamp(seconds=3, nanos=500_000_000)


def test_what_clients_are_told_has_every_field_in_plain_values() -> None:
    box = sandbox_pb2.SandboxInfo(
        id="b", state="SANDBOX_STATE_RUNNING", owner="t", labels={"a": "b"}, created_at=AT
    )
    box.history.add(state="SANDBOX_STATE_RUNNING", reason="r", at=AT)
    info = sandbox_info(box)
    assert (info.id, info.state, info.tenant, info.labels) == ("b", SandboxState.RUNNING, "t", {"a": "b"})
    assert (info.created_at, info.expires_at, info.lease_expires_at) == (3.5, 0.0, None)
    assert info.history == (StateChange(SandboxState.RUNNING, "r", 3.5),)
    layer = sandbox_pb2.SnapshotInfo(
        id="s", state="SNAPSHOT_STATE_READY", created_at=AT, labels={"a": "b"}, boxes=2
    )
    assert snapshot_info(layer) == SnapshotInfo(
        "s", "", "", SnapshotState.READY, "", {"a": "b"}, 3.5, 0, 0, 2
    )
    file = sandbox_pb2.FileStat(path="p", size=1, mode=0o644, modified_at=AT, symlink_target="q")
    assert file_info(file) == FileInfo("p", 1, 0o644, 3.5, directory=False, symlink_target="q")
    image = registry_pb2.ImageInfo(name="n", size_bytes=9, created_at=AT, built_now=True)
    assert read(image, Image) == Image("n", "", "", "", 9, 3.5, 0.0, evicted=False, built_now=True)


def test_a_field_that_one_side_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="id"):
        read(sandbox_pb2.FileStat(path="p"), SnapshotInfo)
    with pytest.raises(ValueError, match="path"):
        written(FileInfo("p", 1, 0, 0.0, directory=False, symlink_target=""), sandbox_pb2.SnapshotInfo)
