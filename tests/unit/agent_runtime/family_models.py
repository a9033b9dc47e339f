"""Tokenizers with the tokens and the chat template of a family each: written here, doing what the published ones do."""

from __future__ import annotations

from typing import Any, NamedTuple

from template_models import LLAMA31, QWEN3, SMOLLM2, SMOLLM3, SPECIALS, tokenizer_with

_ALTERNATE = """
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('Conversation roles must alternate') }}
  {%- endif %}"""
_TURNS = """
  {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}"""
_GEMMA_END = """
  {{- message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}
"""
GEMMA2 = (
    """
{{- '<bos>' }}
{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}
{%- for message in messages %}"""
    + _ALTERNATE
    + _TURNS
    + _GEMMA_END
)
GEMMA3 = (
    """
{{- '<bos>' }}
{%- set first = '' %}
{%- if messages[0].role == 'system' %}
  {%- set first = messages[0].content + '\\n\\n' %}{%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}"""
    + _ALTERNATE
    + _TURNS
    + """{%- if loop.first %}{{- first }}{%- endif %}"""
    + _GEMMA_END
)
PHI3_FIRST = """
{%- for message in messages %}
  {%- if message.role == 'user' %}{{- '<|user|>\\n' + message.content + '<|end|>\\n<|assistant|>\\n' }}
  {%- elif message.role == 'assistant' %}{{- message.content + '<|end|>\\n' }}{%- endif %}
{%- endfor %}
"""
"""Phi 3 as it first came: it leaves a system message out, and opens the answer whether asked or not."""
PHI3 = """
{%- for message in messages %}
  {%- if message.role in ('system', 'user', 'assistant') %}
    {{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- else %}{{- eos_token }}{%- endif %}
"""
PHI4_MINI = """
{%- for message in messages %}
  {{- '<|' + message.role + '|>' + message.content }}
  {%- if message.role == 'system' and message.tools %}{{- '<|tool|>' + message.tools + '<|/tool|>' }}{%- endif %}
  {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- else %}{{- eos_token }}{%- endif %}
"""
LLAMA32 = LLAMA31.replace("{#- <|python_tag|> -#}", "")
"""The small models of Llama 3.2 have no tools built in: their template names no tag for them."""
QWEN3_THINKING = QWEN3.replace(
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}",
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}",
)
"""Of the models that only think: the prompt opens the thought."""

_GEMMA = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
_PHI = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>", "<|/tool|>")
_HERMES = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class Model(NamedTuple):
    """A family's template and tokens, and what is known of it."""

    template: str
    family: str
    """What `choose` says."""
    end: str
    """Of an answer."""
    opens: str
    """What a prompt ends with."""
    specials: tuple[str, ...] = SPECIALS
    words: tuple[str, ...] = ()
    eos: str = "<|im_end|>"

    @property
    def tokenizer(self) -> Any:
        """Return a new one."""
        return tokenizer_with(self.template, self.specials, words=self.words, eos=self.eos)


_CHATML = ("<|im_end|>", "<|im_start|>assistant\n")
_HEADED = ("<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n")
_TURN = ("<end_of_turn>", "<start_of_turn>model\n")
MODELS = {
    "qwen3": Model(QWEN3, "qwen", *_CHATML, words=_HERMES),
    "qwen3 thinking": Model(QWEN3_THINKING, "qwen", "<|im_end|>", "assistant\n<think>\n", words=_HERMES),
    "llama 3.1": Model(LLAMA31, "llama", *_HEADED, eos="<|eot_id|>"),
    "llama 3.2": Model(LLAMA32, "llama", *_HEADED, eos="<|eot_id|>"),
    "smollm 2": Model(SMOLLM2, "smollm", *_CHATML),
    "smollm 3": Model(SMOLLM3, "smollm", *_CHATML, words=_HERMES),
    "gemma 2": Model(GEMMA2, "generic", *_TURN, _GEMMA, eos="<eos>"),
    "gemma 3": Model(GEMMA3, "generic", *_TURN, _GEMMA, eos="<eos>"),
    "phi 3, first": Model(PHI3_FIRST, "generic", "<|end|>", "<|assistant|>\n", _PHI, eos="<|endoftext|>"),
    "phi 3": Model(PHI3, "generic", "<|end|>", "<|assistant|>\n", _PHI, eos="<|endoftext|>"),
    "phi 4 mini": Model(PHI4_MINI, "generic", "<|end|>", "<|assistant|>", _PHI, eos="<|endoftext|>"),
}
