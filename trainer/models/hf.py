"""The `hf` engine: any causal language model of Hugging Face Transformers, `--model PATH_OR_ID`.

Found by entry point `ale.engines`. Transformers is imported when a model is built, nowhere else. Sampling uses the
engine's own decode loop over the model's key/value cache, so that samples are seeded per request and their
log-probabilities are those of the distribution sampled from; parameters are trained in float32.
Shapes: B rows, T tokens, M picked positions of a row, N picked positions of all rows, D width, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from agent_runtime.chat import Refusal, ToolTemplate
from agent_runtime.render import HFChatTemplate
from agent_runtime.templates.families import tool_template
from agent_runtime.types import IntArray
from rock_env.errors import InvalidArgument
from rock_env.foreign.files import read_text
from trainer.config import TrainConfig
from trainer.learners.lora import Adapters
from trainer.learners.memory import Shape, UpdatePlan
from trainer.learners.parallel.base import SpreadNet
from trainer.learners.parallel.kinds import parallelism
from trainer.learners.prefixes import Trees, laid_out, trees_of
from trainer.learners.ranks.pool import RankPool
from trainer.learners.ranks.train import RankTrain
from trainer.learners.recompute import give_blocks_back, recompute_layers
from trainer.learners.torch_train import TorchTrain
from trainer.models import roles
from trainer.models.plain_text import ROW_TOKENS
from trainer.models.pretrained import max_context, model_config, read
from trainer.protocols.engines import EngineOptions, EngineSpec, OptimOptions, TrainEngine, Weights
from trainer.protocols.memory import Parameters, Part, Role
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch
from trainer.samplers.hf.ragged import RaggedModel

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["ENGINE", "AdaptedNet", "HFNet", "HFOptions", "chat_template"]


class HFOptions(EngineOptions):
    """How a Hugging Face model is loaded and sampled."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the computation; trained parameters and their optimizer state are float32 either way."""
    device: str = "auto"
    """A torch device such as `cpu` or `cuda:0`; `auto` takes CUDA where there is one."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention implementation of Transformers in the learner; the sampler has one of its own."""
    max_context: PositiveInt | None = None
    """Most tokens of prompt and completion together; None: what the model's config says."""
    max_rows: PositiveInt = 64
    """Most requests sampled at once; others wait."""
    cache_bytes: PositiveInt = 4 * 2**30
    """Most memory for keys and values of the requests being sampled."""
    remembered_bytes: NonNegativeInt = 2 * 2**30
    """Most memory for keys and values kept over the turns of sessions; what was not used for longest leaves first."""
    checkpointing: bool | Literal["auto"] = "auto"
    """The learner keeps one state per layer and token, and computes the rest again in the backward pass, which takes a third
    longer. `auto`: where the run would not fit otherwise, by its estimate; its settings then hold what was chosen."""
    ranks: PositiveInt = 1
    """Processes that share the learner's work: one CUDA device each, or the processor."""
    parallelism: str = "torch"
    """How ranks share: `torch` (each holds the whole model), `fsdp2`, `zero1`, `zero2`, `zero3`, or a plugin's name."""
    offload: bool = False
    """The optimizer's moments lie in the host's memory, where the parallelism can have them there."""
    lora_rank: NonNegativeInt = 0
    """Rank of LoRA adapters, which then train in place of the model's weights; 0: all weights train."""
    lora_alpha: PositiveFloat | None = None
    """What LoRA adds is scaled by this over `lora_rank`; None: twice the rank."""
    lora_targets: str | None = None
    """Names of the linear layers that get an adapter, separated by commas; None: all but the output layer."""
    adapter: str = ""
    """Folder of a LoRA adapter in the format of peft that training goes on from, with its own rank, scale and layers."""

    @property
    def half(self) -> bool:
        """Return whether the engine computes in less than float32."""
        return self.dtype == "bfloat16"

    @model_validator(mode="after")
    def _check_lora(self) -> Self:
        if self.adapter and self.lora_rank:
            raise ValueError(
                "adapter brings its own rank: leave out lora_rank, or begin a fresh adapter without adapter."
            )
        if not self.lora_rank and (self.lora_alpha is not None or self.lora_targets is not None):
            raise ValueError(
                "lora_alpha and lora_targets do nothing without lora_rank: set it, such as lora_rank=16, or leave them out."
            )
        return self


class _Cache:
    """Transformers' cache with the mask and positions of left-padded rows (None: nothing is padded)."""

    def __init__(self, past: Any, mask_BT: torch.Tensor | None) -> None:
        self.past = past
        self.mask_BT = mask_BT

    def keep(self, rows: torch.Tensor) -> None:
        """Replace the rows by the old rows `rows`: some dropped, some repeated."""
        self.past.batch_select_indices(rows)
        if self.mask_BT is not None:
            self.mask_BT = self.mask_BT[rows]


class HFNet:
    """A Transformers model as a `PolicyNet`. The model stays in evaluation mode: dropout would make log-probs lie."""

    def __init__(self, model: Any, *, max_context: int, autocast: torch.dtype | None = None) -> None:
        self.model = model.eval()
        self.max_context = max_context
        self._autocast = autocast
        self._backbone = model.base_model
        self._head = model.get_output_embeddings()
        self.vocabulary, self.width = map(int, self._head.weight.shape)
        self._check_head()
        self.shares = self._can_share()

    @torch.no_grad()
    def _check_head(self) -> None:
        """Raise `InvalidArgument` if the model does more to its logits than its output embedding."""
        probe_BT = torch.arange(4, device=self.model.device)[None] % self.vocabulary
        mine = self.logits(self._hidden(input_ids=probe_BT, use_cache=False)[0])
        theirs = self.model(input_ids=probe_BT, use_cache=False).logits[0].float()
        if self._autocast is None and not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-3):
            raise InvalidArgument(
                f"{type(self.model).__name__} transforms its logits after the output embedding (by up to "
                f"{float((mine - theirs).abs().max()):.3g}), which the hf engine does not support. "
                "Choose another model."
            )

    def hidden_at(self, tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> torch.Tensor:
        """Return the final hidden states (`BMD`) at `at_BM` of right-padded rows; the causal mask hides padding.

        What rows begin with in common is computed once where that saves.
        """
        trees = trees_of(tokens_BT, at_BM, self.width) if self.shares and len(tokens_BT) > 1 else None
        if trees is not None:
            return self._hidden_of(trees)
        hidden_BTD = self._hidden(input_ids=tokens_BT, use_cache=False)
        return hidden_BTD.gather(1, at_BM[:, :, None].expand(-1, -1, hidden_BTD.shape[-1]))

    def _hidden_of(self, trees: Trees) -> torch.Tensor:
        hidden_GSD = self._hidden(
            input_ids=trees.tokens_GS,
            position_ids=trees.places_GS,
            attention_mask=trees.mask_G1SS,
            use_cache=False,
        )
        # index_select, because its backward pass adds duplicates in a fixed order.
        picked_ND = hidden_GSD.flatten(0, 1).index_select(0, trees.at_BM.flatten())
        return picked_ND.reshape(*trees.at_BM.shape, hidden_GSD.shape[-1])

    @torch.no_grad()
    def _can_share(self) -> bool:
        """Return whether the model takes a tree's mask and positions: tried with two rows that share two of three tokens."""
        config = self.model.config
        full = set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
        if not full or getattr(config, "sliding_window", None) or config._attn_implementation != "sdpa":
            return False
        tokens_BT = torch.tensor([[0, 1, 2], [0, 1, 3]], device=self.model.device) % self.vocabulary
        at_BM = torch.arange(3, device=self.model.device).expand(2, 3)
        hidden_BTD = self._hidden(input_ids=tokens_BT, use_cache=False)
        shared_BTD = self._hidden_of(laid_out(tokens_BT, at_BM, [np.arange(2)]))
        most = 5e-2 if self._autocast is not None else 1e-3
        return bool((hidden_BTD - shared_BTD).abs().max() <= most * hidden_BTD.abs().max())

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Return the logits (`NV`, float32) of final hidden states."""
        with self._context():
            # Not by a call: what gathers weights around calls of modules hangs on a module around this.
            logits_NV: torch.Tensor = self._head.forward(hidden_ND)
        return logits_NV.float()

    def prefill(
        self, tokens_BT: torch.Tensor, mask_BT: torch.Tensor | None, *, room: int
    ) -> tuple[torch.Tensor, _Cache]:
        """Return the next token's logits (`BV`) after left-padded rows, and the cache (it grows by itself)."""
        from transformers import DynamicCache

        cache = _Cache(DynamicCache(config=self.model.config), mask_BT)
        place_BT = None if mask_BT is None else (mask_BT.long().cumsum(1) - 1).clamp_min(0)
        return self._advance(tokens_BT, place_BT, cache), cache

    def decode(self, tokens_B: torch.Tensor, cache: _Cache) -> torch.Tensor:
        """Append one token to every row and return the next token's logits (`BV`).

        Rows that have ended may be decoded on; their positions stop at the last one the model knows.
        """
        place_BT = None
        if cache.mask_BT is not None:
            cache.mask_BT = torch.cat((cache.mask_BT, cache.mask_BT.new_ones(len(tokens_B), 1)), dim=1)
            place_BT = (cache.mask_BT.sum(1, keepdim=True) - 1).clamp_max(self.max_context - 1)
        return self._advance(tokens_B[:, None], place_BT, cache)

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return the parameters; tied ones once."""
        parameters: Iterator[tuple[str, torch.nn.Parameter]] = self.model.named_parameters()
        return parameters

    def _advance(self, tokens_BT: torch.Tensor, place_BT: torch.Tensor | None, cache: _Cache) -> torch.Tensor:
        hidden_BTD = self._hidden(
            input_ids=tokens_BT,
            attention_mask=None if cache.mask_BT is None else cache.mask_BT.long(),
            position_ids=place_BT,
            past_key_values=cache.past,
            use_cache=True,
        )
        return self.logits(hidden_BTD[:, -1])

    def _hidden(self, **inputs: Any) -> torch.Tensor:
        with self._context():
            hidden_BTD: torch.Tensor = self._backbone(**inputs).last_hidden_state
        return hidden_BTD

    def _context(self) -> AbstractContextManager[object]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=self._autocast)


class AdaptedNet(HFNet):
    """A Transformers model of which LoRA adapters alone train."""

    def __init__(
        self, model: Any, adapters: Adapters, *, max_context: int, autocast: torch.dtype | None = None
    ) -> None:
        super().__init__(model, max_context=max_context, autocast=autocast)
        self.adapters = adapters

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return the adapters' parameters."""
        return self.adapters.named_parameters()

    def merged(self) -> Weights:
        """Return the weights of the model with its adapters added in."""
        return self.adapters.merged()

    def showing(self, weights: Weights) -> AbstractContextManager[None]:
        """Compute with weights that `merged` gave."""
        return self.adapters.showing(weights)


def _chats(model: str) -> Any:
    """Return the tokenizer of a model that takes turns. Raise `InvalidArgument` for one without a chat template."""
    tokenizer = read("AutoTokenizer", model)
    if not tokenizer.chat_template:
        raise InvalidArgument(
            f"model {model!r} has no chat template, so it cannot take turns. Choose an instruct or chat model, or add "
            "a chat_template.jinja to its folder."
        )
    return tokenizer


def chat_template(model: str, options: HFOptions) -> HFChatTemplate:
    """Return the chat template of a model. Raise `InvalidArgument`."""
    tokenizer = _chats(model)
    longest = max_context(model, options.max_context, read("AutoConfig", model))
    try:
        return HFChatTemplate(tokenizer, longest)
    except (ValueError, Refusal) as error:
        raise InvalidArgument(f"cannot chat with model {model!r}: {error}") from error


def _tools(model: str, options: HFOptions) -> ToolTemplate:
    tokenizer = _chats(model)
    try:
        return tool_template(tokenizer, max_context(model, options.max_context, read("AutoConfig", model)))
    except (ValueError, Refusal) as error:
        raise InvalidArgument(f"cannot chat with model {model!r} about tools: {error}") from error


def _prose(model: str, options: HFOptions, text: str) -> IntArray:
    del options
    return np.array(read("AutoTokenizer", model)(text, verbose=False).input_ids, np.int32)


def _device(options: HFOptions) -> torch.device:
    if options.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(options.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgument(
            f"cannot use device {options.device!r}: {str(error).splitlines()[0]}. Try 'auto' or 'cpu'."
        ) from error
    return device


def _load(model: str, options: HFOptions, *, half: bool) -> Any:
    return read(
        "AutoModelForCausalLM",
        model,
        dtype=torch.bfloat16 if half else torch.float32,
        attn_implementation=options.attention,
    ).to(_device(options))


def _trained(model: str, options: HFOptions, seed: int, *, uniform: bool = False) -> HFNet:
    """Return the net that learns: what trains is float32, what is frozen has the precision of the computation.

    `uniform`: what is frozen is float32, too.
    """
    has_adapters = bool(options.lora_rank or options.adapter)
    loaded = _load(model, options, half=options.half and has_adapters and not uniform)
    how: Any = {
        "max_context": max_context(model, options.max_context, loaded.config),
        "autocast": torch.bfloat16 if options.half else None,
    }
    if options.checkpointing is True:
        recompute_layers(loaded)
        give_blocks_back()
    if has_adapters:
        return AdaptedNet(loaded, _adapters(loaded, options, seed), **how)
    return HFNet(loaded, **how)


def _adapters(loaded: Any, options: HFOptions, seed: int) -> Adapters:
    if options.adapter:
        return Adapters.read(loaded, options.adapter)
    return Adapters.fresh(
        loaded,
        rank=options.lora_rank,
        alpha=options.lora_alpha or 2.0 * options.lora_rank,
        targets=options.lora_targets or "all-linear",
        seed=seed,
    )


def _inference(model: str, options: HFOptions, seed: int) -> ContinuousBatch:
    del seed  # a request carries its own
    template = chat_template(model, options)
    loaded = _load(model, options, half=options.half)
    ragged = RaggedModel(loaded, max_context=max_context(model, options.max_context, loaded.config))
    token_bytes = ragged.cache().bytes_per_token
    bounds = Bounds(
        rows=options.max_rows,
        running_tokens=options.cache_bytes // token_bytes,
        remembered_tokens=options.remembered_bytes // token_bytes,
    )
    return ContinuousBatch(ragged, end_id=template.end_id, bounds=bounds, text=template.decode)


def _train(model: str, options: HFOptions, seed: int, optim: OptimOptions) -> TrainEngine:
    if options.ranks > 1 or options.parallelism != "torch" or options.offload:
        parallelism(options.parallelism, offload=options.offload).check()
        kind = _device(options).type
        if kind == "cuda" and options.ranks > torch.cuda.device_count():
            raise InvalidArgument(
                f"ranks={options.ranks} needs as many CUDA devices, found {torch.cuda.device_count()}. Lower it, or set "
                "device='cpu'."
            )
        return RankPool(partial(_rank, model, options, seed, optim), optim, ranks=options.ranks, kind=kind)
    net = _trained(model, options, seed)
    tokenizer = read("AutoTokenizer", model)

    def export(folder: Path) -> None:
        if isinstance(net, AdaptedNet):
            net.adapters.export(folder)
        else:
            net.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return TorchTrain(net, optim, export=export, device=_device(options))


def _rank(
    model: str, options: HFOptions, seed: int, optim: OptimOptions, mesh: DeviceMesh, device: torch.device
) -> RankTrain:
    """Build one rank of a learner, in its process."""
    shared = parallelism(options.parallelism, offload=options.offload)
    net = _trained(model, options.model_copy(update={"device": str(device)}), seed, uniform=shared.masters)
    tokenizer = read("AutoTokenizer", model)
    spread = SpreadNet(net, shared.spread(net, mesh, optim, options.offload), device)

    def export(folder: Path) -> None:
        first = mesh.get_rank() == 0
        if isinstance(net, AdaptedNet):
            net.adapters.export(folder, spread.spread.placement, write=first)
        else:
            weights = {name: torch.from_numpy(value) for name, value in spread.merged().items()}
            if first:
                net.model.save_pretrained(folder, state_dict=weights)
        if first:
            tokenizer.save_pretrained(folder)

    return RankTrain(spread, optim, export=export, device=device)


def _lora_rank(options: HFOptions) -> int:
    if not options.adapter:
        return options.lora_rank
    path = Path(options.adapter) / "adapter_config.json"
    try:
        return int(json.loads(read_text(path))["r"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidArgument(
            f"cannot read the rank of the adapter {path}: {error!r}. Expected a LoRA adapter in the format of peft."
        ) from error


def _parameters(model: str, options: HFOptions) -> Parameters:
    shape = Shape.of(model_config(model))
    adapters = roles.adapter_parameters(shape, _lora_rank(options))
    return Parameters(adapters or shape.parameters, shape.parameters)


def _memory(model: str, options: HFOptions, config: TrainConfig, part: Part | None) -> list[Role]:
    about = model_config(model)
    shape, longest = Shape.of(about), max_context(model, options.max_context, about)
    part = part or roles.largest_part(config, longest)
    shared = parallelism(options.parallelism, offload=options.offload)
    plan = UpdatePlan(
        tokens=part.tokens,
        trained=part.trained,
        half=options.half,
        checkpointing=options.checkpointing is True,
        adapters=roles.adapter_parameters(shape, _lora_rank(options)),
        ranks=options.ranks,
        divided=shared.divides,
        masters=shared.masters,
        offload=options.offload,
    )
    device = roles.device_of(config, "learner", _device(options).type)
    found = roles.learner(shape, plan, device, text=min(ROW_TOKENS, longest) if config.guard.text_rise else 0)
    if roles.needs_reference(config):
        found.append(roles.reference(shape, plan, device))
    return [*found, roles.store(shape)]


def _sampler_memory(model: str, options: HFOptions, config: TrainConfig) -> list[Role]:
    about = model_config(model)
    return [
        roles.sampler(
            Shape.of(about),
            roles.device_of(config, "sampler", _device(options).type),
            processes=config.rollout.engines,
            half=options.half,
            rows=min(options.max_rows, roles.at_once(config)),
            max_context=max_context(model, options.max_context, about),
            cache_bytes=options.cache_bytes,
            remembered_bytes=options.remembered_bytes,
        )
    ]


ENGINE = EngineSpec(
    name="hf",
    summary="any causal language model of Hugging Face Transformers with a chat template",
    options=HFOptions,
    template=chat_template,
    inference=_inference,
    train=_train,
    tools=_tools,
    prose=_prose,
    stops=True,
    memory=_memory,
    sampler_memory=_sampler_memory,
    parameters=_parameters,
    steps=True,
    agreement=0.01,
)
