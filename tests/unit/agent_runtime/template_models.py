"""Small tokenizers for tests, made here, with chat templates of the main families: shortened, but doing what theirs do."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
)
WORDS = r"""[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
"""Where merges end, as in Qwen's and Llama's tokenizers."""
MERGES = [("i", "t"), ("Ġ", "t"), ("<", "t"), ("Ċ", "Ċ"), ("Ġ", "{"), ("o", "n"), (".", "Ċ")]
"""A few merges, so that where text is cut decides what tokens it has."""

QWEN3 = """
{%- if tools %}{{- '<|im_start|>system\\n' }}
  {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
  {{- '# Tools\\n\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
  {{- '\\n</tools>\\n\\nReturn a JSON object within <tool_call></tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if loop.index0 > ns.last and (loop.last or message.reasoning_content) %}
      {{- '<think>\\n' + (message.reasoning_content or '').strip('\\n') + '\\n</think>\\n\\n' }}
      {{- message.content.lstrip('\\n') }}
    {%- else %}{{- message.content }}{%- endif %}
    {%- for call in message.tool_calls or [] %}
      {%- if (loop.first and message.content) or not loop.first %}{{- '\\n' }}{%- endif %}
      {{- '<tool_call>\\n{"name": "' }}{{- call.function.name }}{{- '", "arguments": ' }}
      {%- if call.function.arguments is string %}{{- call.function.arguments }}
      {%- else %}{{- call.function.arguments | tojson }}{%- endif %}{{- '}\\n</tool_call>' }}
    {%- endfor %}{{- '<|im_end|>\\n' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
LLAMA31 = """
{{- '<|begin_of_text|>' }}
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Today Date: 26 Jul 2024\\n\\n' + system + '<|eot_id|>' }}
{%- if tools is not none %}
  {%- if messages | length == 0 %}{{- raise_exception('no first user message') }}{%- endif %}
  {%- set first = messages[0].content | trim %}{%- set messages = messages[1:] %}
  {{- '<|start_header_id|>user<|end_header_id|>\\n\\nRespond with {"name": ..., "parameters": ...}.\\n\\n' }}
  {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}{{- first + '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
  {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
  {%- elif 'tool_calls' in message %}
    {%- if message.tool_calls | length != 1 %}{{- raise_exception('only single tool-calls at once') }}{%- endif %}
    {%- set call = message.tool_calls[0].function %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
    {{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
  {%- else %}
    {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
    {%- if message.content is mapping %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
    {{- '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
{#- <|python_tag|> -#}
"""
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, "
    "trained by Hugging Face<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SMOLLM3 = """
{{- '<|im_start|>system\\nYou are SmolLM.\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- set messages = messages[1:] %}{%- endif %}
{%- if tools %}{{- '\\n### Tools\\n<tools>\\n' }}{%- for tool in tools %}{{- (tool | string) + '\\n' }}{%- endfor %}
  {{- '</tools>\\nAnswer with <tool_call>.' }}{%- endif %}{{- '<|im_end|>\\n' }}
{%- for message in messages %}
  {%- if message.role == 'user' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' + message.content.lstrip('\\n') }}
    {%- for call in message.tool_calls or [] %}
      {{- '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' }}
    {%- endfor %}{{- '<|im_end|>\\n' }}
  {%- elif message.role == 'tool' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
"""Opens the reasoning itself, and never shows it again."""
TEMPLATES = {"qwen": QWEN3, "llama": LLAMA31, "smollm2": SMOLLM2, "smollm3": SMOLLM3, "generic": CHATML}


def tokenizer_with(
    chat_template: str,
    specials: tuple[str, ...] = SPECIALS,
    *,
    words: tuple[str, ...] = (),
    eos: str = "<|im_end|>",
) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with a family's special tokens, and `words` that are one token each.

    As with published models only the end of a text has a name (`eos_token`); the other special tokens are listed.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    for left, right in MERGES:
        vocabulary[left + right] = len(vocabulary)
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True) for token in specials])
    core.add_tokens([AddedToken(word, special=False) for word in words])
    fast = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=eos)
    fast.chat_template = chat_template
    return fast
