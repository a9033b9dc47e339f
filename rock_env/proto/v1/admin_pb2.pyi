import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from rock_env.proto.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CapacityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CapacityResponse(_message.Message):
    __slots__ = ("envs_in_workers", "envs_in_sandboxes", "workers", "max_workers", "uptime_s")
    ENVS_IN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    ENVS_IN_SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_WORKERS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    envs_in_workers: int
    envs_in_sandboxes: int
    workers: int
    max_workers: int
    uptime_s: float
    def __init__(self, envs_in_workers: _Optional[int] = ..., envs_in_sandboxes: _Optional[int] = ..., workers: _Optional[int] = ..., max_workers: _Optional[int] = ..., uptime_s: _Optional[float] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("boxes", "cpus", "memory_bytes")
    BOXES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    boxes: int
    cpus: float
    memory_bytes: int
    def __init__(self, boxes: _Optional[int] = ..., cpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("tenant", "limits", "weight")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    limits: Limits
    weight: float
    def __init__(self, tenant: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class TenantQuota(_message.Message):
    __slots__ = ("tenant", "limits", "weight", "used", "waiting")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    limits: Limits
    weight: float
    used: Limits
    waiting: int
    def __init__(self, tenant: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., weight: _Optional[float] = ..., used: _Optional[_Union[Limits, _Mapping]] = ..., waiting: _Optional[int] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("capacity", "used", "waiting", "tenants")
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    capacity: Limits
    used: Limits
    waiting: int
    tenants: _containers.RepeatedCompositeFieldContainer[TenantQuota]
    def __init__(self, capacity: _Optional[_Union[Limits, _Mapping]] = ..., used: _Optional[_Union[Limits, _Mapping]] = ..., waiting: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[TenantQuota, _Mapping]]] = ...) -> None: ...

class SetPoolRequest(_message.Message):
    __slots__ = ("spec", "size")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    spec: _sandbox_pb2.SandboxSpec
    size: int
    def __init__(self, spec: _Optional[_Union[_sandbox_pb2.SandboxSpec, _Mapping]] = ..., size: _Optional[int] = ...) -> None: ...

class PoolInfo(_message.Message):
    __slots__ = ("digest", "spec", "target", "ready", "starting", "hits", "misses", "lost", "failures", "last_failure", "retry_in_s", "waits_for_room", "backend")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    MISSES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    RETRY_IN_S_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_ROOM_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    digest: str
    spec: _sandbox_pb2.SandboxSpec
    target: int
    ready: int
    starting: int
    hits: int
    misses: int
    lost: int
    failures: int
    last_failure: str
    retry_in_s: float
    waits_for_room: bool
    backend: str
    def __init__(self, digest: _Optional[str] = ..., spec: _Optional[_Union[_sandbox_pb2.SandboxSpec, _Mapping]] = ..., target: _Optional[int] = ..., ready: _Optional[int] = ..., starting: _Optional[int] = ..., hits: _Optional[int] = ..., misses: _Optional[int] = ..., lost: _Optional[int] = ..., failures: _Optional[int] = ..., last_failure: _Optional[str] = ..., retry_in_s: _Optional[float] = ..., waits_for_room: bool = ..., backend: _Optional[str] = ...) -> None: ...

class ListPoolsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoolsResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[PoolInfo]
    def __init__(self, pools: _Optional[_Iterable[_Union[PoolInfo, _Mapping]]] = ...) -> None: ...

class CollectImagesRequest(_message.Message):
    __slots__ = ("free_bytes", "dry_run")
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    free_bytes: int
    dry_run: bool
    def __init__(self, free_bytes: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class CollectedImage(_message.Message):
    __slots__ = ("image_id", "size_bytes", "names", "used_at", "kept_because")
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    USED_AT_FIELD_NUMBER: _ClassVar[int]
    KEPT_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    image_id: str
    size_bytes: int
    names: _containers.RepeatedScalarFieldContainer[str]
    used_at: _timestamp_pb2.Timestamp
    kept_because: str
    def __init__(self, image_id: _Optional[str] = ..., size_bytes: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., used_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kept_because: _Optional[str] = ...) -> None: ...

class CollectImagesResponse(_message.Message):
    __slots__ = ("removed", "kept", "free_bytes")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedCompositeFieldContainer[CollectedImage]
    kept: _containers.RepeatedCompositeFieldContainer[CollectedImage]
    free_bytes: int
    def __init__(self, removed: _Optional[_Iterable[_Union[CollectedImage, _Mapping]]] = ..., kept: _Optional[_Iterable[_Union[CollectedImage, _Mapping]]] = ..., free_bytes: _Optional[int] = ...) -> None: ...

class CensusRequest(_message.Message):
    __slots__ = ("sweep",)
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    sweep: bool
    def __init__(self, sweep: bool = ...) -> None: ...

class CensusResponse(_message.Message):
    __slots__ = ("backends",)
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    backends: _containers.RepeatedCompositeFieldContainer[BackendCensus]
    def __init__(self, backends: _Optional[_Iterable[_Union[BackendCensus, _Mapping]]] = ...) -> None: ...

class BackendCensus(_message.Message):
    __slots__ = ("backend", "boxes", "records", "orphans", "ghosts", "layers", "stray_layers", "missing_layers", "error", "stock")
    class OrphansEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class GhostsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    GHOSTS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    STRAY_LAYERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_LAYERS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STOCK_FIELD_NUMBER: _ClassVar[int]
    backend: str
    boxes: int
    records: int
    orphans: _containers.ScalarMap[str, str]
    ghosts: _containers.ScalarMap[str, str]
    layers: int
    stray_layers: _containers.RepeatedScalarFieldContainer[str]
    missing_layers: _containers.RepeatedScalarFieldContainer[str]
    error: str
    stock: int
    def __init__(self, backend: _Optional[str] = ..., boxes: _Optional[int] = ..., records: _Optional[int] = ..., orphans: _Optional[_Mapping[str, str]] = ..., ghosts: _Optional[_Mapping[str, str]] = ..., layers: _Optional[int] = ..., stray_layers: _Optional[_Iterable[str]] = ..., missing_layers: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ..., stock: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("within",)
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    within: _duration_pb2.Duration
    def __init__(self, within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("durable", "ending")
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    durable: int
    ending: int
    def __init__(self, durable: _Optional[int] = ..., ending: _Optional[int] = ...) -> None: ...

class RegisteredEnv(_message.Message):
    __slots__ = ("name", "digest", "source", "registered_at", "tasks", "images")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    source: str
    registered_at: _timestamp_pb2.Timestamp
    tasks: int
    images: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., source: _Optional[str] = ..., registered_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tasks: _Optional[int] = ..., images: _Optional[_Iterable[str]] = ...) -> None: ...

class PutEnvRequest(_message.Message):
    __slots__ = ("env", "tasks")
    ENV_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    env: RegisteredEnv
    tasks: bytes
    def __init__(self, env: _Optional[_Union[RegisteredEnv, _Mapping]] = ..., tasks: _Optional[bytes] = ...) -> None: ...

class PutEnvResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveEnvRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveEnvResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
