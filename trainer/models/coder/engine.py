"""The `coder` engine: a policy for software tasks small enough for a CPU, sampled and trained on one thread.

`--model coder` is a fresh one; `--model FOLDER` reads what `export` wrote. Found by entry point `ale.engines`. It reads and
writes words of code, its answers are tool calls, and it points into what it was shown; see `net`, `grammar`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
from pydantic import PositiveInt
from safetensors.torch import load_file, save_file

from rock_env.errors import InvalidArgument
from rock_env.store.whole_file import write_whole
from trainer.learners.torch_train import TorchTrain
from trainer.models.coder.choices import choices
from trainer.models.coder.net import CoderNet, CoderShape, features, visible
from trainer.models.coder.page import read_page
from trainer.models.coder.sampling import CoderInference
from trainer.models.coder.template import CoderChatTemplate
from trainer.models.coder.words import CoderWords
from trainer.models.saved import load_weights, read_saved
from trainer.protocols.engines import EngineOptions, EngineSpec, OptimOptions

__all__ = ["BASE", "ENGINE", "CoderOptions", "TrainedCoder"]

FRESH = "coder"
BASE = Path(__file__).with_name("base.safetensors")
"""What `scripts/coder_pretrain.py` learned from the standard library's functions."""
_SHAPE_FILE = "ale_coder.json"
_WORDS_FILE = "ale_coder_words.json"
_WEIGHTS_FILE = "model.safetensors"
_FORMAT = "ale-coder-1"


class CoderOptions(EngineOptions):
    """Shape of a fresh coder (a folder brings its own) and how it is sampled."""

    layers: PositiveInt = 3
    """Transformer layers."""
    width: PositiveInt = 96
    """Width of the residual stream; the MLP is four times as wide."""
    heads: PositiveInt = 4
    """Attention heads; `width` must be a multiple of four times as many."""
    max_context: PositiveInt = 2048
    """Most tokens of prompt and completion together."""
    max_rows: PositiveInt = 32
    """Most prompts sampled in one batch."""
    pretrained: bool = True
    """Begin a fresh coder with the built-in base weights; false begins with random ones, which may have another shape."""
    kept: PositiveInt = 256
    """Rollouts whose earlier turns are kept in memory, so that a turn reads only what is new."""


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    shape: CoderShape


class TrainedCoder(CoderNet):
    """The network with the scores that training asks for."""

    def load_base(self) -> None:
        """Take the built-in base weights. Raise `InvalidArgument` for a network of another shape or vocabulary."""
        stored = load_file(BASE)
        shapes = {name: tuple(value.shape) for name, value in self.named_parameters()}
        if shapes != {name: tuple(value.shape) for name, value in stored.items()}:
            raise InvalidArgument(
                "the built-in base weights have another shape than the coder asked for. Set engine_options.pretrained=false "
                "to begin with random ones, or leave layers, width and heads as they are."
            )
        self.load_state_dict({name: value.float() for name, value in stored.items()})

    def picked(
        self, tokens_UT: torch.Tensor, at_UM: torch.Tensor, source_N: torch.Tensor, targets_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log pi of each target, the token after place `source_N` of the flattened `at_UM`, and the final states
        there; differentiable."""
        rows = [row[: int(last) + 1].numpy() for row, last in zip(tokens_UT, at_UM.amax(1), strict=True)]
        pages = [read_page(row, self.words) for row in rows]
        width = max(len(page.at_W) for page in pages)
        first = [0] * len(pages)
        told = features(pages, self.words, first=first, width=width)
        mask = torch.from_numpy(visible(pages, first=first, width=width, slots=width))
        hidden_UWD, marks_UWD = self.read(told, mask)
        row_N, column_N = source_N // at_UM.shape[1], at_UM.flatten()[source_N]
        asked = [(pages[u], at) for u, at in zip(row_N.tolist(), column_N.tolist(), strict=True)]
        unit_N = torch.tensor([int(page.unit_T[at]) for page, at in asked])
        hidden_ND = hidden_UWD.flatten(0, 1).index_select(0, row_N * width + unit_N)
        options = choices(asked, self.words, width)
        asked_ND = self.asked(hidden_ND, options)
        asked_UMD = asked_ND.new_zeros(at_UM.numel(), asked_ND.shape[1]).index_put((source_N,), asked_ND)
        found_UMS = torch.bmm(asked_UMD.view(*at_UM.shape, -1), marks_UWD.transpose(1, 2))
        found_NS = found_UMS.flatten(0, 1).index_select(0, source_N)
        spelled_NV, places_NS = self.scores(hidden_ND, found_NS, options)
        total_N = torch.logsumexp(torch.cat((spelled_NV, places_NS), dim=1), dim=1)
        points_N = targets_N >= self.vocabulary
        wanted_N = torch.tensor(
            [
                int(page.unit_T[target - self.vocabulary]) if target >= self.vocabulary else -1
                for (page, _), target in zip(asked, targets_N.tolist(), strict=True)
            ]
        )
        wanted_NS = options.group_NS == wanted_N[:, None]
        places_N = torch.logsumexp(places_NS.masked_fill(~wanted_NS, -torch.inf)[points_N], dim=1)
        spelled_N = spelled_NV[~points_N].gather(1, targets_N[~points_N][:, None])[:, 0]
        values_N = total_N.new_zeros(len(targets_N))
        values_N = values_N.index_put((points_N.nonzero()[:, 0],), places_N)
        values_N = values_N.index_put(((~points_N).nonzero()[:, 0],), spelled_N)
        return values_N - total_N, hidden_ND


def _words(model: str) -> CoderWords:
    return CoderWords.built_in() if model == FRESH else CoderWords.read(Path(model) / _WORDS_FILE)


def _shape(model: str, options: CoderOptions) -> CoderShape:
    """Return a fresh model's shape, or the one in the folder."""
    if model == FRESH:
        return CoderShape(options.layers, options.width, options.heads, options.max_context)
    path = Path(model) / _SHAPE_FILE
    saved = read_saved(
        path,
        _Saved,
        expected=_FORMAT,
        cannot=f"cannot read the coder {model!r}",
        remedy=f"Expected {FRESH!r} (a fresh model) or a folder written by a run's export.",
        old="Export the model again.",
    )
    return saved.shape


def _net(model: str, options: CoderOptions, seed: int) -> TrainedCoder:
    shape = _shape(model, options)
    net = TrainedCoder(_words(model), shape, seed)
    if model == FRESH:
        if options.pretrained:
            net.load_base()
        return net
    load_weights(net, Path(model) / _WEIGHTS_FILE)
    return net


def _template(model: str, options: CoderOptions) -> CoderChatTemplate:
    shape = _shape(model, options)
    return CoderChatTemplate(_words(model), shape.max_context)


def _inference(model: str, options: CoderOptions, seed: int) -> CoderInference:
    return CoderInference(_net(model, options, seed), max_rows=options.max_rows, kept=options.kept)


def _train(model: str, options: CoderOptions, seed: int, optim: OptimOptions) -> TorchTrain:
    net = _net(model, options, seed)

    def export(folder: Path) -> None:
        weights = {name: value.detach().clone() for name, value in net.named_parameters()}
        write_whole(folder / _WEIGHTS_FILE, lambda path: save_file(weights, path))
        write_whole(folder / _WORDS_FILE, net.words.save)
        saved = msgspec.json.encode(_Saved(format=_FORMAT, shape=net.shape))
        write_whole(folder / _SHAPE_FILE, lambda path: path.write_bytes(saved))

    return TorchTrain(net, optim, export=export)


ENGINE = EngineSpec(
    name="coder",
    summary="a transformer of about 0.7 million parameters that points into code, small enough to train on a CPU",
    options=CoderOptions,
    template=_template,
    inference=_inference,
    train=_train,
    agreement=0.01,
)
