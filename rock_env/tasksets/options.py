"""What a user may say about how a task set is read, beside where it lies. Validated once; unknown names are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rock_env.arguments import items, problem
from rock_env.errors import InvalidArgument, nearest
from rock_env.grading.model import GradeIn

__all__ = ["FolderOptions", "ReadOptions", "options_of"]


class ReadOptions(BaseModel):
    """Base of a format's options."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    leave_out: tuple[str, ...] = Field(default=())
    """Fields to do without although they cannot be honoured, as the error names them (`environment.mcp_servers`)."""

    @field_validator("leave_out", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return items(value) if isinstance(value, str) else value


class FolderOptions(ReadOptions):
    """Options of the formats that are one folder for each task."""

    grade_in: Mapping[str, GradeIn] = Field(default_factory=dict)
    """`fork`: the tests see the agent's files, and none of its processes. `same`: also what it left running, for tasks that
    ask for a service. One for all, or by the names of tasks: `http-kv=same,fork`."""
    variables: Mapping[str, str] = Field(default_factory=dict)
    """What `${NAME}` stands for in the task's environment variables; the reader's own environment is not looked at.
    A table, or `NAME=VALUE,NAME=VALUE`."""

    def where(self, task: str, own: str = "") -> GradeIn:
        """Return where the tests of a task run; `own` is what its file says, which an option for this task overrules.

        Raise `InvalidArgument` where the file says anything else.
        """
        if own and own not in get_args(GradeIn):
            known = ", ".join(get_args(GradeIn))
            raise InvalidArgument(f"bad grade_in {own!r} of task {task!r}: expected one of {known}.")
        return self.grade_in.get(task) or cast("GradeIn", own) or self.grade_in.get("", "fork")

    @field_validator("grade_in", mode="before")
    @classmethod
    def _by_task(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        cut = (part.rpartition("=") for part in items(value))
        return {name.strip(): where.strip() for name, _, where in cut}

    @field_validator("variables", mode="before")
    @classmethod
    def _table(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        cut = (part.partition("=") for part in items(value))
        return {name.strip(): said for name, _, said in cut}


Kind = TypeVar("Kind", bound=ReadOptions)


def options_of(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Validate options. Raise `UnknownName`, or `InvalidArgument` for a bad value."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"] if part != "")
        if first["type"] == "extra_forbidden":
            raise nearest("option of this task format", name, kind.model_fields) from error
        raise InvalidArgument(f"bad option {name!r}: {problem(error)}.") from error
