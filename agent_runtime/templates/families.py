"""The model families that are known, and which of them a tokenizer is of.

A family is read off the tokenizer's chat template, never off the model's name: fine-tunes keep the one and change the other.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from agent_runtime.chat import ChatMessage
from agent_runtime.templates.jinja import Family, JinjaToolTemplate, ToolTokenizer
from agent_runtime.templates.textual import PYTHON_TAG, read_hermes, read_llama

__all__ = ["FAMILIES", "Choice", "choose", "tool_template"]


def _llama_calls(message: ChatMessage) -> str:
    """Return an answer with calls as Llama samples them; its template takes one call, and no text beside it."""
    calls = [
        f'{{"name": {json.dumps(call.name)}, "parameters": {call.arguments.strip() or "{}"}}}'
        for call in message.tool_calls
    ]
    said = f"{message.content.strip()}{PYTHON_TAG}" if message.content.strip() else ""
    return said + "; ".join(calls)


_THOUGHT = ("<think>", "</think>")
_TAGS = (*_THOUGHT, "<tool_call>", "</tool_call>")
FAMILIES = {
    "qwen": Family("qwen", read_hermes, native=True, keep=_TAGS),
    "llama": Family("llama", read_llama, native=True, keep=(*_THOUGHT, PYTHON_TAG), calls_text=_llama_calls),
    "smollm": Family("smollm", read_hermes, native=True, keep=_TAGS),
    "smollm_text": Family("smollm", read_hermes, native=False, keep=_TAGS),
    "generic": Family("generic", read_hermes, native=False, keep=_TAGS),
}
"""Keys are what `choose` returns. SmolLM 3 has tools in its template; SmolLM 2 is told of them in the system message."""


class Choice(NamedTuple):
    """A family, and the reason it was chosen for."""

    family: Family
    why: str


def choose(tokenizer: ToolTokenizer) -> Choice:
    """Return the family of a tokenizer. Raise `ValueError` for one without a chat template."""
    text = tokenizer.chat_template
    if isinstance(
        text, dict
    ):  # several templates by name; the library renders the one for tools, if tools are given
        text = text.get("tool_use") or text.get("default")
    if not text or not isinstance(text, str):
        raise ValueError(
            f"the tokenizer has no chat template: got {tokenizer.chat_template!r}. Use the model's instruct variant, or set "
            "tokenizer.chat_template."
        )
    if "<|start_header_id|>" in text and "ipython" in text:
        return Choice(FAMILIES["llama"], "its template has <|start_header_id|> and the role ipython")
    hermes = "tools" in text and "<tool_call>" in text
    if "SmolLM" in text:
        if hermes:
            return Choice(FAMILIES["smollm"], "its template names SmolLM and shows tools")
        return Choice(FAMILIES["smollm_text"], "its template names SmolLM and knows no tools: they are text")
    if hermes and "<|im_start|>" in text:
        return Choice(FAMILIES["qwen"], "its template is ChatML with tools and <tool_call>")
    if "tools" in text:
        return Choice(
            FAMILIES["generic"], "its template has tools in a format not known here: they are text instead"
        )
    return Choice(FAMILIES["generic"], "its template knows no tools: they are text")


def tool_template(tokenizer: ToolTokenizer, max_context: int) -> JinjaToolTemplate:
    """Return the template of a tokenizer's family. Raise `ValueError` for a chat template that cannot be extended."""
    return JinjaToolTemplate(tokenizer, max_context, choose(tokenizer).family)
