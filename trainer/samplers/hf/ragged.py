"""A Transformers model over rows of unequal length: one cache for all rows, a mask, and positions of their own.

Every row lives in a slot, starts at position 0 and is followed by unused places, which the mask hides. One call advances
any number of rows by a ragged number of tokens each, as one tensor operation per layer. Knows nothing of requests.
Shapes: L layers, S slots, C places of a slot, H key/value heads, D width of a head, R rows of a call, N tokens of its
longest row, K keys a call looks at, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from rock_env.errors import InvalidArgument

__all__ = ["RaggedCache", "RaggedModel"]

_ATTENTION = "ale_ragged"
_STEP = 64
"""Rooms and widths are multiples of this, so that few shapes occur and kernels' alignment rules hold."""


def rounded(tokens: int) -> int:
    """Return the next multiple of the step in which caches grow."""
    return -(-tokens // _STEP) * _STEP


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """Attend without repeating keys and values: the query heads of one key/value head become queries of their own."""
    rows, heads, count, width = query.shape
    group = heads // key.shape[1]
    if attention_mask is None:  # the model is asked without a cache, by its own forward
        square = torch.ones(count, key.shape[2], dtype=torch.bool, device=key.device)
        attention_mask = square.tril(key.shape[2] - count)[None, None]
    if sliding_window is not None:
        seen = attention_mask.sum(-1, keepdim=True)  # the mask is a prefix of the keys
        place = torch.arange(key.shape[2], device=key.device)
        attention_mask = attention_mask & (place >= seen - sliding_window)
    if group > 1:
        query = query.reshape(rows, key.shape[1], group * count, width)
        if count > 1:
            attention_mask = attention_mask.repeat(1, 1, group, 1)
    if scaling is None:
        scaling = width**-0.5
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    return out.reshape(rows, heads, count, width).transpose(1, 2), None


class RaggedCache:
    """Keys and values of all slots in one tensor (`[L, 2, S, C + 1, H, D]`); the last place takes what is padding."""

    def __init__(
        self, layers: int, heads: int, width: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._shape = layers, heads, width
        self.data = torch.zeros(layers, 2, 0, 1, heads, width, dtype=dtype, device=device)

    @property
    def slots(self) -> int:
        """Return for how many rows there is room."""
        return self.data.shape[2]

    @property
    def room(self) -> int:
        """Return how many tokens a row can have."""
        return self.data.shape[3] - 1

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one token's keys and values, all layers."""
        layers, heads, width = self._shape
        return 2 * layers * heads * width * self.data.element_size()

    def resize(self, slots: int, room: int, *, keep: int) -> None:
        """Have so many slots and places. The first `keep` slots keep what fits, all else is zero."""
        layers, heads, width = self._shape
        old = self.data
        if not keep:
            self.data = old[:, :, :0]  # the old memory is free before the new is taken
            del old
            self.data = self.data.new_zeros(layers, 2, slots, room + 1, heads, width)
            return
        places = min(old.shape[3] - 1, room)
        self.data = old.new_zeros(layers, 2, slots, room + 1, heads, width)
        self.data[:, :, :keep, :places] = old[:, :, :keep, :places]

    def read(self, slot: int, tokens: int) -> torch.Tensor:
        """Return a copy of a slot's first tokens (`[L, 2, tokens, H, D]`)."""
        return self.data[:, :, slot, :tokens].clone()

    def write(self, slot: int, kept: torch.Tensor, tokens: int) -> None:
        """Put the first tokens of what `read` gave into a slot."""
        self.data[:, :, slot, :tokens] = kept[:, :, :tokens]

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy a slot's first tokens into another."""
        self.data[:, :, target, :tokens] = self.data[:, :, source, :tokens]

    def clear(self, slot: int) -> None:
        """Zero a slot: what is not finite would reach the next row through its mask."""
        self.data[:, :, slot] = 0


class _Frame:
    """The cache as one forward call of Transformers sees it: `update` stores what is new and returns all of a row."""

    def __init__(self, data: torch.Tensor, slots: slice, place_RN: torch.Tensor, keys: int) -> None:
        self._data = data[:, :, slots]
        self._row_R1 = torch.arange(len(place_RN), device=place_RN.device)[:, None]
        self._place_RN = place_RN
        self._keys = keys

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *_args: Any, **_more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's new keys and values (`RHND`) and return all of them (`RHKD`)."""
        mine = self._data[layer]
        mine[0].index_put_((self._row_R1, self._place_RN), key.transpose(1, 2))
        mine[1].index_put_((self._row_R1, self._place_RN), value.transpose(1, 2))
        return mine[0, :, : self._keys].transpose(1, 2), mine[1, :, : self._keys].transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: positions and masks are given to the model."""
        del layer_idx
        return 0


class _Shapes(_Frame):
    """Notes the shapes of a model's keys and values, and stores nothing."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[torch.Size, torch.Size]] = {}

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *_args: Any, **_more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen[layer] = key.shape, value.shape
        return key, value


class RaggedModel:
    """A causal language model of Transformers that advances ragged rows. It takes the model over: its attention changes."""

    def __init__(self, model: Any, *, max_context: int) -> None:
        """Raise `InvalidArgument` for a model whose log-probabilities would not be its own this way."""
        self.model = model.eval()
        self.max_context = max_context
        self.device: torch.device = next(model.parameters()).device
        self._backbone = model.base_model
        self._head = model.get_output_embeddings()
        self.vocabulary = int(self._head.weight.shape[0])
        self.dtype: torch.dtype = self._head.weight.dtype
        with torch.inference_mode():
            probe = (torch.arange(6, device=self.device)[None] * 7) % self.vocabulary
            expected = model(input_ids=probe, use_cache=False).logits[0].float()
            self._take_over()
            self._shape = self._find_shape(probe)
            self._check(probe, expected)

    def cache(self) -> RaggedCache:
        """Return a cache for this model, without room yet."""
        layers, heads, width = self._shape
        return RaggedCache(layers, heads, width, dtype=self.dtype, device=self.device)

    def advance(
        self,
        cache: RaggedCache,
        slots: slice,
        tokens_RN: torch.Tensor,
        start_R: torch.Tensor,
        count_R: torch.Tensor | None,
        *,
        keys: int,
    ) -> torch.Tensor:
        """Append tokens to the rows of consecutive slots; return the logits (`RV`, float32) after each row's last.

        Row r has `start_R[r]` tokens and gets `count_R[r]` of `tokens_RN[r]` (None: all). `keys` is at least every row's
        length afterwards, and at most the cache's room. Asks the device nothing.
        """
        step_N = torch.arange(tokens_RN.shape[1], device=self.device)
        place_RN = start_R[:, None] + step_N
        mask_R1NK = torch.arange(keys, device=self.device) <= place_RN[:, None, :, None]
        write_RN = place_RN
        if count_R is not None:
            write_RN = torch.where(step_N < count_R[:, None], place_RN, cache.room)
        hidden_RND = self._backbone(
            input_ids=tokens_RN,
            attention_mask=mask_R1NK,
            position_ids=place_RN.clamp_max(self.max_context - 1),
            past_key_values=_Frame(cache.data, slots, write_RN, keys),
            use_cache=True,
        ).last_hidden_state
        if count_R is None:
            last_RD = hidden_RND[:, -1]
        else:
            at_R11 = (count_R - 1).clamp_min(0)[:, None, None]
            last_RD = hidden_RND.gather(1, at_R11.expand(-1, 1, hidden_RND.shape[-1]))[:, 0]
        logits_RV: torch.Tensor = self._head(last_RD)
        return logits_RV.float()

    @torch.inference_mode()
    def logprobs(self, ids: torch.Tensor) -> torch.Tensor:
        """Return log pi (float32) of each token of one sequence after the first, by one forward without a cache."""
        count = len(ids)
        mask = torch.ones(count, count, dtype=torch.bool, device=self.device).tril()[None, None]
        hidden_1ND = self._backbone(
            input_ids=ids[None].to(self.device),
            attention_mask=mask,
            position_ids=torch.arange(count, device=self.device)[None],
            use_cache=False,
        ).last_hidden_state
        logprobs_NV = torch.log_softmax(self._head(hidden_1ND[0, :-1]).float(), -1)
        return logprobs_NV.gather(1, ids[1:, None].to(self.device))[:, 0]

    def _take_over(self) -> None:
        from transformers import AttentionInterface

        AttentionInterface.register(_ATTENTION, _attention)
        self.model.config._attn_implementation = _ATTENTION
        self._backbone.config._attn_implementation = _ATTENTION

    def _find_shape(self, probe: torch.Tensor) -> tuple[int, int, int]:
        shapes, count = _Shapes(), probe.shape[1]
        mask = torch.ones(count, count, dtype=torch.bool, device=self.device).tril()[None, None]
        place = torch.arange(count, device=self.device)[None]
        self._backbone(
            input_ids=probe, attention_mask=mask, position_ids=place, past_key_values=shapes, use_cache=True
        )
        kinds = {shape for pair in shapes.seen.values() for shape in pair}
        if len(kinds) != 1 or sorted(shapes.seen) != list(range(len(shapes.seen))):
            raise InvalidArgument(
                f"{type(self.model).__name__} keeps keys and values of {len(kinds)} shapes in its layers, expected one. The "
                "hf sampler does not support it: choose another model."
            )
        _, heads, _, width = kinds.pop()
        return len(shapes.seen), heads, width

    def _check(self, probe: torch.Tensor, expected_NV: torch.Tensor) -> None:
        """Raise `InvalidArgument` where ragged rows do not give the model's own logits."""
        cache = self.cache()
        cache.resize(2, _STEP, keep=0)
        zeros, counts = torch.tensor([0, 0], device=self.device), torch.tensor([2, 4], device=self.device)
        self.advance(cache, slice(0, 2), probe[:, :4].expand(2, -1), zeros, counts, keys=_STEP)
        last = probe[0, counts][:, None]
        found_RV = self.advance(cache, slice(0, 2), last, counts, None, keys=_STEP)
        error = float((found_RV - expected_NV[counts]).abs().max())
        bound = (1e-3 if self.dtype == torch.float32 else 0.1) * max(1.0, float(expected_NV.abs().max()))
        if not error <= bound:
            raise InvalidArgument(
                f"{type(self.model).__name__} gives other logits with caches of unequal length than without a cache: they "
                f"differ by {error:.3g}, expected at most {bound:.3g}. The hf sampler does not support it: choose another "
                "model."
            )
