"""The `tiny` engine: a from-scratch transformer with its own tokenizer, sampled and trained on one CPU thread.

`--model tiny` is a fresh one; `--model FOLDER` reads what `export` wrote. Found by entry point `ale.engines`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from pydantic import PositiveInt
from safetensors.torch import save_file

from agent_runtime.templates.plain import PlainTemplate
from rock_env.store.whole_file import write_whole
from trainer.learners.torch_train import TorchTrain
from trainer.models.saved import load_weights, read_saved
from trainer.models.tiny.model import TinyModel, TinyShape
from trainer.models.tiny.tokenizer import END, TinyChatTemplate, TinyTokenizer
from trainer.protocols.engines import EngineOptions, EngineSpec, OptimOptions
from trainer.samplers.generate import TorchInference

__all__ = ["ENGINE", "TinyOptions"]

FRESH = "tiny"
_SHAPE_FILE = "ale_tiny.json"
_TOKENIZER_FILE = "ale_tiny_tokenizer.json"
_WEIGHTS_FILE = "model.safetensors"
_FORMAT = "ale-tiny-1"


class TinyOptions(EngineOptions):
    """Shape of a fresh tiny model (a folder brings its own) and how it is sampled."""

    layers: PositiveInt = 3
    """Transformer layers."""
    width: PositiveInt = 64
    """Width of the residual stream; the MLP is four times as wide."""
    heads: PositiveInt = 4
    """Attention heads; must divide `width`."""
    max_context: PositiveInt = 512
    """Most tokens of prompt and completion together."""
    max_rows: PositiveInt = 256
    """Most prompts sampled in one batch."""


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that says what shape the weights beside it have."""

    format: str
    shape: TinyShape


def _tokenizer(model: str) -> TinyTokenizer:
    return TinyTokenizer() if model == FRESH else TinyTokenizer.read(Path(model) / _TOKENIZER_FILE)


def _shape(model: str, options: TinyOptions) -> TinyShape:
    """Return a fresh model's shape, or the one in the folder."""
    if model == FRESH:
        return TinyShape(
            vocabulary=_tokenizer(model).size,
            layers=options.layers,
            width=options.width,
            heads=options.heads,
            max_context=options.max_context,
        )
    path = Path(model) / _SHAPE_FILE
    saved = read_saved(
        path,
        _Saved,
        expected=_FORMAT,
        cannot=f"cannot read the tiny model {model!r}",
        remedy=f"Expected {FRESH!r} (a fresh model) or a folder written by a run's export.",
        old="Export the model again.",
    )
    return saved.shape


def _net(model: str, options: TinyOptions, seed: int) -> TinyModel:
    net = TinyModel(_shape(model, options), seed)
    if model == FRESH:
        return net
    load_weights(net, Path(model) / _WEIGHTS_FILE)
    return net


def _template(model: str, options: TinyOptions) -> TinyChatTemplate:
    shape = _shape(model, options)
    return TinyChatTemplate(_tokenizer(model), shape.max_context)


def _tools(model: str, options: TinyOptions) -> PlainTemplate:
    """Return the template of CLI agents: its special tokens are the tokenizer's."""
    tokenizer = _tokenizer(model)
    max_context = _shape(model, options).max_context
    return PlainTemplate(max_context, encode=tokenizer.encode, decode=tokenizer.decode)


def _inference(model: str, options: TinyOptions, seed: int) -> TorchInference:
    return TorchInference(
        _net(model, options, seed), end_id=END, max_rows=options.max_rows, text=_tokenizer(model).decode
    )


def _train(model: str, options: TinyOptions, seed: int, optim: OptimOptions) -> TorchTrain:
    net = _net(model, options, seed)
    tokenizer = _tokenizer(model)

    def export(folder: Path) -> None:
        weights = {name: value.detach().clone() for name, value in net.named_parameters()}
        write_whole(folder / _WEIGHTS_FILE, lambda path: save_file(weights, path))
        write_whole(folder / _TOKENIZER_FILE, tokenizer.save)
        saved = msgspec.json.encode(_Saved(format=_FORMAT, shape=net.shape))
        write_whole(folder / _SHAPE_FILE, lambda path: path.write_bytes(saved))

    return TorchTrain(net, optim, export=export)


ENGINE = EngineSpec(
    name="tiny",
    summary="a transformer of about 0.2 million parameters, trained from scratch on a CPU",
    options=TinyOptions,
    template=_template,
    inference=_inference,
    train=_train,
    tools=_tools,
    stops=True,
    agreement=0.01,
)
