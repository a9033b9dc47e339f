from rock_env.proto.v1 import env_pb2 as _env_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpisodeState(_message.Message):
    __slots__ = ("env", "version", "params_json", "task_id", "done", "snapshot")
    ENV_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    env: str
    version: str
    params_json: str
    task_id: str
    done: bool
    snapshot: bytes
    def __init__(self, env: _Optional[str] = ..., version: _Optional[str] = ..., params_json: _Optional[str] = ..., task_id: _Optional[str] = ..., done: bool = ..., snapshot: _Optional[bytes] = ...) -> None: ...

class HostMakeItem(_message.Message):
    __slots__ = ("env_id", "env", "params_json", "state", "resume_seed")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESUME_SEED_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    env: str
    params_json: str
    state: EpisodeState
    resume_seed: int
    def __init__(self, env_id: _Optional[str] = ..., env: _Optional[str] = ..., params_json: _Optional[str] = ..., state: _Optional[_Union[EpisodeState, _Mapping]] = ..., resume_seed: _Optional[int] = ...) -> None: ...

class HostMakeRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[HostMakeItem]
    def __init__(self, items: _Optional[_Iterable[_Union[HostMakeItem, _Mapping]]] = ...) -> None: ...

class HostMakeResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_env_pb2.MakeResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[_env_pb2.MakeResponse, _Mapping]]] = ...) -> None: ...

class HostSnapshotRequest(_message.Message):
    __slots__ = ("env_id",)
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    def __init__(self, env_id: _Optional[str] = ...) -> None: ...

class HostSnapshotResponse(_message.Message):
    __slots__ = ("env_id", "state", "error")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    state: EpisodeState
    error: _env_pb2.ItemError
    def __init__(self, env_id: _Optional[str] = ..., state: _Optional[_Union[EpisodeState, _Mapping]] = ..., error: _Optional[_Union[_env_pb2.ItemError, _Mapping]] = ...) -> None: ...

class HostSplitsRequest(_message.Message):
    __slots__ = ("env_id", "env", "params_json")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    env: str
    params_json: str
    def __init__(self, env_id: _Optional[str] = ..., env: _Optional[str] = ..., params_json: _Optional[str] = ...) -> None: ...

class HostSplitsResponse(_message.Message):
    __slots__ = ("env_id", "splits", "error")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    splits: _containers.RepeatedCompositeFieldContainer[_env_pb2.TaskSplit]
    error: _env_pb2.ItemError
    def __init__(self, env_id: _Optional[str] = ..., splits: _Optional[_Iterable[_Union[_env_pb2.TaskSplit, _Mapping]]] = ..., error: _Optional[_Union[_env_pb2.ItemError, _Mapping]] = ...) -> None: ...

class HostRestoreRequest(_message.Message):
    __slots__ = ("request", "state")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    request: _env_pb2.RestoreRequest
    state: EpisodeState
    def __init__(self, request: _Optional[_Union[_env_pb2.RestoreRequest, _Mapping]] = ..., state: _Optional[_Union[EpisodeState, _Mapping]] = ...) -> None: ...
