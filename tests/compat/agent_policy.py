"""A policy that fixes a toy repository by script, in one of thirteen ways, whichever CLI agent asks it.

Used by `benchmarks.agents` and `tests/compat`. It is a `Sampler`: what it says goes through the template, the gateway and
the agent's own wire format like any model's answer. It reads its place in the script out of the prompt, so that repetitions,
sub-agents and compactions find it where they expect it: what the agent dropped, it forgets, as a model does.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from agent_runtime.agents.spec import AgentSpec
from agent_runtime.chat import Refusal, RefusalKind
from agent_runtime.policy import Completion, PolicyError, SampleRequest, first_stop
from agent_runtime.templates.plain import FIRST_BYTE, USER, PlainTemplate
from agent_runtime.types import IntArray

__all__ = ["BROKEN", "CUT_MARK", "FILES", "FIXED", "Mode", "ScriptedPolicy", "long_template"]

BROKEN = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
FILES = {
    "calc.py": BROKEN,
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
}
_FIX = "sed -i 's/a - b/a + b/' calc.py && cat calc.py"
_EDIT = """\
calc.py
```python
<<<<<<< SEARCH
    return a - b
=======
    return a + b
>>>>>>> REPLACE
```
"""
_STEP = re.compile(r"\[step (\d+)\]")
_LONG_STEP = re.compile(r"\[long (\d+)\]")
_CALL = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)
_DELEGATED = "Read calc.py and say which operator is wrong."
CUT_MARK = "[cut]"
"""In an answer of the modes `cut` and `long_cut`: the connection breaks right behind it."""
PAGE = "This line only makes the answer long.\n" * 100
"""One token of `long_template`: agents bound an answer's tokens at 32,000, sockets hold more characters than that."""
LATE_S = 0.6
"""How late answers come in the mode `streaming`."""
_PAGES = 300
"""A megabyte: more than the buffers between gateway and agent hold, so that the gateway sees that nobody reads on."""
_PAGE_ID = FIRST_BYTE + 256
_SUMMARY = re.compile(r"summar|compact(?!ly)|state_snapshot|handoff", re.IGNORECASE)
_LONG = "seq 1 2500"
_MOST_LONG = 14
_WORDS: dict[str, dict[str, object]] = {
    "run_shell_command": {"is_background": False},
    "bash": {"description": "run a command"},
}
_COMMAND = {"exec_command": "cmd"}
"""Names of the argument that holds a command, where it is not `command`."""
_SUB_AGENTS: dict[str, tuple[str, dict[str, object]]] = {
    "claude-code": (
        "Agent",
        {"description": "look", "prompt": _DELEGATED, "subagent_type": "general-purpose"},
    ),
    "qwen-code": ("agent", {"description": "look", "prompt": _DELEGATED, "subagent_type": "general-purpose"}),
    "opencode": ("task", {"description": "look", "prompt": _DELEGATED, "subagent_type": "general"}),
    "codex": ("multi_agent_v1__spawn_agent", {"message": _DELEGATED}),
}
_SPAWNED = re.compile(r'"agent_id":\s*"([^"]+)"')
"""Codex's sub-agents work beside the main conversation, which waits for one by its name."""


class Mode(StrEnum):
    """What happens on the way to the fix."""

    NORMAL = "normal"
    STREAMING = "streaming"
    """Answers come late; until then a stream says that it lives."""
    PARALLEL = "parallel"
    """Two tool calls in one answer."""
    RATE_LIMIT = "429"
    """The second call is refused once."""
    SERVER_ERROR = "500"
    OVERFLOW = "overflow"
    """The second call is told once that the context is full."""
    MALFORMED = "malformed"
    """The second answer's tool call is no JSON."""
    UNKNOWN_TOOL = "unknown_tool"
    """The second answer calls a tool that is not on offer."""
    EMPTY = "empty"
    """The second answer says nothing."""
    CUT = "cut"
    """The second answer breaks off when it has left the gateway, which does not know of it."""
    LONG_CUT = "long_cut"
    """The second answer is so long that the gateway sees it break off."""
    SUB_AGENTS = "sub_agents"
    COMPACTION = "compaction"
    """Outputs fill the context until the agent compacts, or stops."""


class _Shown(NamedTuple):
    text: str
    last: str
    """The newest message of user or tool."""
    results: int
    """How many results of tools it has."""


@dataclass(eq=False)
class ScriptedPolicy:
    """A `Sampler` for one run of one agent in one mode."""

    spec: AgentSpec
    mode: Mode
    template: PlainTemplate
    stops = True

    def __post_init__(self) -> None:
        self.sampled: list[IntArray] = []
        """Every answer it gave, in order."""
        self.prompts: list[IntArray] = []
        """What it was shown for each."""
        self.faulted = False
        """The mode's fault has happened."""
        self.both = False
        """It was shown the results of both calls of one answer."""

    async def sample(self, request: SampleRequest) -> Completion:
        """Answer, or fail as the mode says."""
        text = self._answer(_shown(self.template, request.prompt_ids))
        if self.mode is Mode.STREAMING:
            await asyncio.sleep(LATE_S)
        at, stop = first_stop(text, request.stop)
        text = text[: at + len(stop)] if stop else text
        ids = self.template.encode_answer(text)[: -1 if stop else None][: request.params.max_tokens]
        cut = len(ids) == request.params.max_tokens
        self.sampled.append(ids)
        self.prompts.append(request.prompt_ids)
        return Completion(
            ids, np.full(len(ids), -0.5, np.float32), "length" if cut else "stop", 1, "" if cut else stop
        )

    def _answer(self, prompt: _Shown) -> str:
        """Return what to say to a prompt; raise the mode's fault at the second step, once."""
        if not self.spec.shell_tool:
            return self._edit(prompt)
        if "<tools>" not in prompt.text[:4000]:
            return self._aside(prompt)
        said = _CALL.sub("", prompt.text)
        if self.mode is Mode.SUB_AGENTS and _DELEGATED in said:
            return self._delegate(said)
        done = max((int(number) for number in _STEP.findall(said)), default=0)
        self.both |= done == 1 and prompt.results == 2
        filled = max((int(number) for number in _LONG_STEP.findall(said)), default=0)
        if self.mode in (Mode.COMPACTION, Mode.OVERFLOW) and "[summary]" not in said:
            if (done or filled) and _asks_summary(prompt.last):
                return self._aside(prompt)
            if self.mode is Mode.COMPACTION and filled < _MOST_LONG:
                return f"[long {filled + 1}] I look at more.\n{self._shell(_LONG)}"
        if done == 1 and "[wait]" not in said and (spawned := _SPAWNED.search(said)):
            wait = _tool_call("multi_agent_v1__wait_agent", {"targets": [spawned[1]]})
            return f"[wait] I wait for it.\n{wait}"
        return self._main(done)

    def _main(self, done: int) -> str:
        if done == 1 and not self.faulted and (fault := self._fault()) is not None:
            return fault
        if done == 0:
            return self._first()
        if done == 1:
            return self._step(2, _FIX)
        if self.spec.name == "mini-swe-agent":
            return self._step(done + 1, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
        return f"[step {done + 1}] The operator was wrong; calc.py is fixed."

    def _first(self) -> str:
        if self.mode is Mode.PARALLEL:
            return "\n".join([self._step(1, "cat calc.py"), self._shell("cat test_calc.py")])
        if self.mode is Mode.SUB_AGENTS and self.spec.name in _SUB_AGENTS:
            name, arguments = _SUB_AGENTS[self.spec.name]
            return f"[step 1] I let somebody look.\n{_tool_call(name, arguments)}"
        return self._step(1, "cat calc.py")

    def _fault(self) -> str | None:
        """Return the second answer that this mode has instead of the right one; None where it has none."""
        self.faulted = True
        if self.mode is Mode.RATE_LIMIT:
            raise Refusal(RefusalKind.RATE_LIMIT, "too many requests, as the script says", retry_after_s=1.0)
        if self.mode is Mode.SERVER_ERROR:
            raise PolicyError("the engine failed, as the script says")
        if self.mode is Mode.OVERFLOW:
            raise Refusal(
                RefusalKind.CONTEXT_OVERFLOW,
                "the prompt has 40000 tokens, but the model's context is 32768 tokens",
                details=(("limit", 32768), ("prompt", 40000), ("completion", 100), ("got", 40100)),
            )
        if self.mode is Mode.MALFORMED:
            broken = f'{{"name": "{self.spec.shell_tool}", "arguments": {{"command": "cat calc.py"'
            return f"I look again.\n<tool_call>\n{broken}\n</tool_call>"
        if self.mode is Mode.UNKNOWN_TOOL:
            return f"I look it up.\n{_tool_call('read_the_manual', {'page': 1})}"
        if self.mode is Mode.CUT:
            return f"{CUT_MARK} {self._step(2, _FIX)}"
        if self.mode is Mode.LONG_CUT:
            return f"{CUT_MARK} {PAGE * _PAGES}"
        return "" if self.mode is Mode.EMPTY else None

    def _edit(self, prompt: _Shown) -> str:
        """Answer an agent that reads edits out of the text."""
        if "SEARCH" not in prompt.text:
            return self._aside(prompt)
        right = f"[step 1] The operator is wrong.\n\n{_EDIT}"
        if self.faulted or (fault := self._fault()) is None:
            return right
        if self.mode is Mode.MALFORMED:
            return _EDIT.replace("return a - b", "return a * b")
        return f"{CUT_MARK} {right}" if self.mode is Mode.CUT else fault

    def _delegate(self, said: str) -> str:
        """Answer a sub-agent: one look, then its report."""
        own = said[said.rindex(_DELEGATED) :]
        if "return a - b" in own or "[look]" in own:
            return "The minus is wrong."
        return f"[look] I read it.\n{self._shell('cat calc.py')}"

    def _aside(self, prompt: _Shown) -> str:
        """Answer a request without tools, or for a summary."""
        if _asks_summary(prompt.last) or _SUMMARY.search(prompt.text[:2000]):
            tag = "state_snapshot" if "state_snapshot" in prompt.text else "summary"
            return f"<{tag}>[summary] The task: fix calc.py. Nothing is changed yet.</{tag}>"
        return "Fix the calculator"

    def _step(self, number: int, command: str) -> str:
        return f"[step {number}] I run a command.\n{self._shell(command)}"

    def _shell(self, command: str) -> str:
        name = self.spec.shell_tool
        return _tool_call(name, {_COMMAND.get(name, "command"): command, **_WORDS.get(name, {})})


def long_template(max_context: int) -> PlainTemplate:
    """Return the plain template with one more token, a page."""
    return PlainTemplate(max_context, encode=_encode, decode=_decode)


def _encode(text: str) -> IntArray:
    first, *others = (
        np.frombuffer(part.encode("utf-8", "replace"), np.uint8).astype(np.int32) + np.int32(FIRST_BYTE)
        for part in text.split(PAGE)
    )
    page = np.array([_PAGE_ID], np.int32)
    return np.concatenate([first, *(ids for other in others for ids in (page, other))])


def _decode(ids: IntArray) -> str:
    (pages,) = np.nonzero(ids == _PAGE_ID)
    parts = (part[(part >= FIRST_BYTE) & (part < _PAGE_ID)] for part in np.split(ids, pages))
    return PAGE.join(
        (part - FIRST_BYTE).astype(np.uint8).tobytes().decode(errors="replace") for part in parts
    )


def _shown(template: PlainTemplate, ids: IntArray) -> _Shown:
    """Read a prompt."""
    (marks,) = np.nonzero(ids < FIRST_BYTE)
    messages = np.split(ids, marks)
    newest = next((message for message in reversed(messages) if len(message) and message[0] == USER), ids)
    told = [template.parse(message, ()).text for message in messages]
    results = sum(text.startswith("<tool_response>") for text in told)
    return _Shown(template.parse(ids, ()).text, template.parse(newest, ()).text, results)


def _asks_summary(message: str) -> bool:
    """Return whether a message asks for a summary; one that has it does not."""
    return "[summary]" not in message and _SUMMARY.search(message) is not None


def _tool_call(name: str, arguments: dict[str, object]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
