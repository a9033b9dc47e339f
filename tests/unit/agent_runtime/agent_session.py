"""A session without sockets: a tree of calls, a fake sampler, and what the engine saw of each prompt."""

from __future__ import annotations

import json

import numpy as np
from flat_branches import token_arrays

from agent_runtime.calls.labels import labels
from agent_runtime.calls.record import trajectory
from agent_runtime.calls.tree import Call, CallTree, Match
from agent_runtime.chat import Asked, ChatMessage, ChatRequest, ToolSpec, ToolUse
from agent_runtime.graph import validate
from agent_runtime.policy import Completion
from agent_runtime.templates.plain import PlainTemplate
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start, StopReason
from rock_env.env import Verdict

TOOLS = (
    ToolSpec("bash", "Run a command.", '{"type": "object", "properties": {"command": {"type": "string"}}}'),
    ToolSpec("edit", "Edit a file.", '{"type": "object"}'),
)
REQUEST = RolloutRequest(
    "r", "toy", "{}", "train/0", "g", 0, 0, AgentConfig(), SamplingParams(), Start(env_seed=0)
)


class Session:
    """Answers requests with texts that the test chooses, and remembers every prompt the engine was given."""

    def __init__(self, template=None) -> None:
        self.template = template or PlainTemplate(1 << 20)
        self.tree = CallTree(self.template)
        self.seen: list[list[int]] = []
        self.match: Match | None = None

    def ask(
        self,
        messages,
        answer="Done.",
        *,
        tools=TOOLS,
        deliver=True,
        finish="stop",
        asked=Asked.UNSAID,
        conversation="",
        stream=False,
    ) -> Call:
        request = ChatRequest(
            tuple(messages), tuple(tools), asked=asked, conversation=conversation, stream=stream
        )
        self.match = self.tree.match(request)
        prompt = self.tree.prompt(self.match)
        ids = self.template.encode_answer(answer)
        ids = ids if finish == "stop" else ids[:-1]
        logprobs = np.linspace(-2, -0.1, len(ids), dtype=np.float32)
        completion = Completion(ids, logprobs, finish, 3)
        self.seen.append(prompt.ids.tolist())
        call = self.tree.commit(self.match, prompt, completion, self.template.parse(ids, request.tools))
        if deliver:
            self.tree.deliver(call)
        return call

    def labels(self) -> list[str]:
        return [label.value for label in labels(self.tree)]

    def record(self, reward=1.0):
        return trajectory(
            self.tree, REQUEST, "toy@1", StopReason.TERMINATED, Verdict(reward, passed=reward > 0)
        )

    def check(self) -> None:
        """Assert the invariants of the record: it is what the engine saw, with each sampled token once."""
        record = self.record()
        validate(record)
        times = np.zeros(len(record.turns), int)
        for branch in record.branches():
            ids, trains, _ = token_arrays(branch)
            last = branch.turns[-1]
            assert ids.tolist() == self.seen[last.index] + last.completion_ids.tolist()
            for turn in branch.turns[branch.shared :]:
                times[turn.index] += 1
            assert trains.sum() == sum(len(turn.completion_ids) for turn in branch.turns[branch.shared :])
        assert (times == 1).all()


def system(text="You are an agent.") -> ChatMessage:
    return ChatMessage("system", text)


def user(text) -> ChatMessage:
    return ChatMessage("user", text)


def tool(text, to="call_0") -> ChatMessage:
    return ChatMessage("tool", text, tool_call_id=to)


def echo(call: Call) -> ChatMessage:
    """Return an answer as an agent that changes nothing sends it back."""
    return ChatMessage("assistant", call.parsed.text, call.parsed.reasoning, call.parsed.tool_calls)


def called(text, *calls) -> str:
    """Return an answer that calls tools: (name, arguments as JSON text)."""
    return "\n".join(
        [
            text,
            *(f'<tool_call>\n{{"name": {json.dumps(n)}, "arguments": {a}}}\n</tool_call>' for n, a in calls),
        ]
    )


def use(name, arguments, identity="call_0") -> ToolUse:
    return ToolUse(identity, name, arguments)
