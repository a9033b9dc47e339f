import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from rock_env.proto.v1 import sandbox_pb2 as _sandbox_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECK_RESULT_UNSPECIFIED: _ClassVar[CheckResult]
    CHECK_RESULT_PASS: _ClassVar[CheckResult]
    CHECK_RESULT_FAIL: _ClassVar[CheckResult]
    CHECK_RESULT_SKIP: _ClassVar[CheckResult]
CHECK_RESULT_UNSPECIFIED: CheckResult
CHECK_RESULT_PASS: CheckResult
CHECK_RESULT_FAIL: CheckResult
CHECK_RESULT_SKIP: CheckResult

class RegisterStart(_message.Message):
    __slots__ = ("name", "image", "dockerfile", "build_args")
    class BuildArgsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    DOCKERFILE_FIELD_NUMBER: _ClassVar[int]
    BUILD_ARGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    image: str
    dockerfile: str
    build_args: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., image: _Optional[str] = ..., dockerfile: _Optional[str] = ..., build_args: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("start", "tar")
    START_FIELD_NUMBER: _ClassVar[int]
    TAR_FIELD_NUMBER: _ClassVar[int]
    start: RegisterStart
    tar: bytes
    def __init__(self, start: _Optional[_Union[RegisterStart, _Mapping]] = ..., tar: _Optional[bytes] = ...) -> None: ...

class BuildLog(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class BuildEvent(_message.Message):
    __slots__ = ("build_id", "context_digest", "log", "image")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    context_digest: str
    log: BuildLog
    image: ImageInfo
    def __init__(self, build_id: _Optional[str] = ..., context_digest: _Optional[str] = ..., log: _Optional[_Union[BuildLog, _Mapping]] = ..., image: _Optional[_Union[ImageInfo, _Mapping]] = ...) -> None: ...

class WatchBuildRequest(_message.Message):
    __slots__ = ("build_id", "offset")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    offset: int
    def __init__(self, build_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ImageInfo(_message.Message):
    __slots__ = ("name", "image_id", "context_digest", "source", "size_bytes", "created_at", "used_at", "evicted", "built_now")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    USED_AT_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    BUILT_NOW_FIELD_NUMBER: _ClassVar[int]
    name: str
    image_id: str
    context_digest: str
    source: str
    size_bytes: int
    created_at: _timestamp_pb2.Timestamp
    used_at: _timestamp_pb2.Timestamp
    evicted: bool
    built_now: bool
    def __init__(self, name: _Optional[str] = ..., image_id: _Optional[str] = ..., context_digest: _Optional[str] = ..., source: _Optional[str] = ..., size_bytes: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., used_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., evicted: bool = ..., built_now: bool = ...) -> None: ...

class GetImageRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListImagesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListImagesResponse(_message.Message):
    __slots__ = ("images",)
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    images: _containers.RepeatedCompositeFieldContainer[ImageInfo]
    def __init__(self, images: _Optional[_Iterable[_Union[ImageInfo, _Mapping]]] = ...) -> None: ...

class DeleteImageRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ValidateRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: _sandbox_pb2.SandboxSpec
    def __init__(self, spec: _Optional[_Union[_sandbox_pb2.SandboxSpec, _Mapping]] = ...) -> None: ...

class CheckReport(_message.Message):
    __slots__ = ("name", "result", "evidence", "duration_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    result: CheckResult
    evidence: str
    duration_s: float
    def __init__(self, name: _Optional[str] = ..., result: _Optional[_Union[CheckResult, str]] = ..., evidence: _Optional[str] = ..., duration_s: _Optional[float] = ...) -> None: ...
