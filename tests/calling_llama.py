"""A small Hugging Face model for tests that calls tools: made here, nothing is downloaded, and its answers are few.

After the opening of an answer it says one of `answers`, each a token of its own, nearly evenly; then it ends. That is in
its weights, so that whoever trains it moves these chances: the rest of the text hardly counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import normalize
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WIDTH = 64
_SURE = 1.5
"""Times the root of the width is the logit of what comes next; that of all else is about 0."""


def calling_llama(folder: Path, answers: Sequence[str], texts: Iterable[str], *, context: int) -> str:
    """Write the model and a tokenizer whose words come from `texts`; return where."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=4000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(answer, normalized=False) for answer in answers])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(fast),
                hidden_size=_WIDTH,
                intermediate_size=2 * _WIDTH,
                num_hidden_layers=1,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=context,
                initializer_range=0.02,
                tie_word_embeddings=False,
                eos_token_id=fast.eos_token_id,
                bos_token_id=None,
            )
        )
        _teach(model, fast, answers)
    model.save_pretrained(folder)
    return str(folder)


@torch.no_grad()
def _teach(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, answers: Sequence[str]) -> None:
    """Write into the weights what follows the opening, which ends with a new line, and what follows an answer."""
    said = tokenizer.convert_tokens_to_ids(list(answers))
    opened = tokenizer("<|im_start|>assistant\n")["input_ids"][-1]
    seen, next_up = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    seen.normal_()
    next_up[said] = _SURE * normalize(seen[opened], dim=0)
    next_up[tokenizer.eos_token_id] = _SURE * normalize(seen[said], dim=1).sum(0)
