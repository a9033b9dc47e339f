from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

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
