"""A Hugging Face model for tests: random, tiny, made here; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def random_llama(
    folder: Path, *, context: int = 256, head: int = 8, tied: bool = False, words: Sequence[str] = ()
) -> str:
    """Write a random two-layer Llama with a byte-level tokenizer and a ChatML template; return where.

    `head` is the width of one attention head; `tied` has the output layer share the embedding; `words` are tokens beside the
    letters.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    fast.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=258 + len(words),
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=head,
                tie_word_embeddings=tied,
                max_position_embeddings=context,
                initializer_range=0.3,
                eos_token_id=257,
                bos_token_id=None,
            )
        )
    model.save_pretrained(folder)
    return str(folder)
