from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ItemError(_message.Message):
    __slots__ = ("code", "message", "retry_after_s")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retry_after_s: float
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class ListEnvsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEnvsResponse(_message.Message):
    __slots__ = ("envs",)
    ENVS_FIELD_NUMBER: _ClassVar[int]
    envs: _containers.RepeatedCompositeFieldContainer[EnvDescription]
    def __init__(self, envs: _Optional[_Iterable[_Union[EnvDescription, _Mapping]]] = ...) -> None: ...

class EnvDescription(_message.Message):
    __slots__ = ("name", "version", "summary", "params_schema_json", "replayable", "snapshots", "sandboxed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    PARAMS_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    REPLAYABLE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    SANDBOXED_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    summary: str
    params_schema_json: str
    replayable: bool
    snapshots: bool
    sandboxed: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., summary: _Optional[str] = ..., params_schema_json: _Optional[str] = ..., replayable: bool = ..., snapshots: bool = ..., sandboxed: bool = ...) -> None: ...

class ListSplitsRequest(_message.Message):
    __slots__ = ("env", "params_json")
    ENV_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    env: str
    params_json: str
    def __init__(self, env: _Optional[str] = ..., params_json: _Optional[str] = ...) -> None: ...

class ListSplitsResponse(_message.Message):
    __slots__ = ("splits",)
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    splits: _containers.RepeatedCompositeFieldContainer[TaskSplit]
    def __init__(self, splits: _Optional[_Iterable[_Union[TaskSplit, _Mapping]]] = ...) -> None: ...

class TaskSplit(_message.Message):
    __slots__ = ("name", "count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class MakeRequest(_message.Message):
    __slots__ = ("env", "params_json", "idempotency_key")
    ENV_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    env: str
    params_json: str
    idempotency_key: str
    def __init__(self, env: _Optional[str] = ..., params_json: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class MakeResponse(_message.Message):
    __slots__ = ("env_id", "version", "error")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    version: str
    error: ItemError
    def __init__(self, env_id: _Optional[str] = ..., version: _Optional[str] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class PrefixTurn(_message.Message):
    __slots__ = ("action", "observation_hash")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_HASH_FIELD_NUMBER: _ClassVar[int]
    action: str
    observation_hash: bytes
    def __init__(self, action: _Optional[str] = ..., observation_hash: _Optional[bytes] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("env_id", "sequence", "idempotency_key", "task_id", "seed", "prefix", "resume_seed", "initial_observation_hash", "recovered_turn", "durable")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    RESUME_SEED_FIELD_NUMBER: _ClassVar[int]
    INITIAL_OBSERVATION_HASH_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_TURN_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    sequence: int
    idempotency_key: str
    task_id: str
    seed: int
    prefix: _containers.RepeatedCompositeFieldContainer[PrefixTurn]
    resume_seed: int
    initial_observation_hash: bytes
    recovered_turn: int
    durable: bool
    def __init__(self, env_id: _Optional[str] = ..., sequence: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., task_id: _Optional[str] = ..., seed: _Optional[int] = ..., prefix: _Optional[_Iterable[_Union[PrefixTurn, _Mapping]]] = ..., resume_seed: _Optional[int] = ..., initial_observation_hash: _Optional[bytes] = ..., recovered_turn: _Optional[int] = ..., durable: bool = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("env_id", "observation", "info_json", "instruction", "error", "sandbox_id", "brief", "workdir", "image", "durable", "artifacts")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    observation: str
    info_json: str
    instruction: str
    error: ItemError
    sandbox_id: str
    brief: str
    workdir: str
    image: str
    durable: bool
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    def __init__(self, env_id: _Optional[str] = ..., observation: _Optional[str] = ..., info_json: _Optional[str] = ..., instruction: _Optional[str] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ..., sandbox_id: _Optional[str] = ..., brief: _Optional[str] = ..., workdir: _Optional[str] = ..., image: _Optional[str] = ..., durable: bool = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("name", "media_type", "sha256", "size", "missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    media_type: str
    sha256: str
    size: int
    missing: str
    def __init__(self, name: _Optional[str] = ..., media_type: _Optional[str] = ..., sha256: _Optional[str] = ..., size: _Optional[int] = ..., missing: _Optional[str] = ...) -> None: ...

class ReadArtifactRequest(_message.Message):
    __slots__ = ("env_id", "sha256")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    sha256: str
    def __init__(self, env_id: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class ReadArtifactResponse(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("env_id", "sequence", "idempotency_key", "action")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    sequence: int
    idempotency_key: str
    action: str
    def __init__(self, env_id: _Optional[str] = ..., sequence: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("env_id", "observation", "reward", "terminated", "truncated", "info_json", "error", "artifacts")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info_json: str
    error: ItemError
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    def __init__(self, env_id: _Optional[str] = ..., observation: _Optional[str] = ..., reward: _Optional[float] = ..., terminated: bool = ..., truncated: bool = ..., info_json: _Optional[str] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ...) -> None: ...

class EvaluateRequest(_message.Message):
    __slots__ = ("env_id", "sequence", "idempotency_key")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    sequence: int
    idempotency_key: str
    def __init__(self, env_id: _Optional[str] = ..., sequence: _Optional[int] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class EvaluateResponse(_message.Message):
    __slots__ = ("env_id", "reward", "passed", "details", "error", "artifacts")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    reward: float
    passed: bool
    details: str
    error: ItemError
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    def __init__(self, env_id: _Optional[str] = ..., reward: _Optional[float] = ..., passed: bool = ..., details: _Optional[str] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("env_id", "idempotency_key")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    idempotency_key: str
    def __init__(self, env_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ("checkpoint_id",)
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: str
    def __init__(self, checkpoint_id: _Optional[str] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("env_id", "sequence", "idempotency_key", "checkpoint_id", "resume_seed")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_SEED_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    sequence: int
    idempotency_key: str
    checkpoint_id: str
    resume_seed: int
    def __init__(self, env_id: _Optional[str] = ..., sequence: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., resume_seed: _Optional[int] = ...) -> None: ...

class ForkRequest(_message.Message):
    __slots__ = ("env_id", "count", "idempotency_key", "resume_seeds")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    RESUME_SEEDS_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    count: int
    idempotency_key: str
    resume_seeds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, env_id: _Optional[str] = ..., count: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., resume_seeds: _Optional[_Iterable[int]] = ...) -> None: ...

class ForkResponse(_message.Message):
    __slots__ = ("env_ids",)
    ENV_IDS_FIELD_NUMBER: _ClassVar[int]
    env_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, env_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("sandbox_id", "idempotency_key")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    idempotency_key: str
    def __init__(self, sandbox_id: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("env_id",)
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    def __init__(self, env_id: _Optional[str] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ("env_id", "error")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    error: ItemError
    def __init__(self, env_id: _Optional[str] = ..., error: _Optional[_Union[ItemError, _Mapping]] = ...) -> None: ...

class MakeManyRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[MakeRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[MakeRequest, _Mapping]]] = ...) -> None: ...

class MakeManyResponse(_message.Message):
    __slots__ = ("indices", "items")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    items: _containers.RepeatedCompositeFieldContainer[MakeResponse]
    def __init__(self, indices: _Optional[_Iterable[int]] = ..., items: _Optional[_Iterable[_Union[MakeResponse, _Mapping]]] = ...) -> None: ...

class ResetManyRequest(_message.Message):
    __slots__ = ("items", "item_timeout_s")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ITEM_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ResetRequest]
    item_timeout_s: float
    def __init__(self, items: _Optional[_Iterable[_Union[ResetRequest, _Mapping]]] = ..., item_timeout_s: _Optional[float] = ...) -> None: ...

class ResetManyResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ResetResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[ResetResponse, _Mapping]]] = ...) -> None: ...

class StepManyRequest(_message.Message):
    __slots__ = ("items", "item_timeout_s")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ITEM_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[StepRequest]
    item_timeout_s: float
    def __init__(self, items: _Optional[_Iterable[_Union[StepRequest, _Mapping]]] = ..., item_timeout_s: _Optional[float] = ...) -> None: ...

class StepManyResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[StepResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[StepResponse, _Mapping]]] = ...) -> None: ...

class EvaluateManyRequest(_message.Message):
    __slots__ = ("items", "item_timeout_s")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ITEM_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[EvaluateRequest]
    item_timeout_s: float
    def __init__(self, items: _Optional[_Iterable[_Union[EvaluateRequest, _Mapping]]] = ..., item_timeout_s: _Optional[float] = ...) -> None: ...

class EvaluateManyResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[EvaluateResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[EvaluateResponse, _Mapping]]] = ...) -> None: ...

class CloseManyRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CloseRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[CloseRequest, _Mapping]]] = ...) -> None: ...

class CloseManyResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CloseResponse]
    def __init__(self, items: _Optional[_Iterable[_Union[CloseResponse, _Mapping]]] = ...) -> None: ...
