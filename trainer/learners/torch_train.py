"""Training over any `PolicyNet`: AdamW, microbatches by tokens, log-probabilities only where something trains.

Built by the engine plugins (`tiny`, `hf`), called by the train actor. Knows no algorithm: the loss comes in as a function.
On a CPU the same calls give the same bits. Segments of a packed row are computed as rows of their own, so a network
never sees more than one sequence per row.
Shapes: B rows, T tokens, S segments, U distinct ones, M trained tokens of the segment that has most, N trained tokens,
D width, V vocabulary.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rock_env.errors import InvalidArgument
from rock_env.store.whole_file import write_whole
from trainer.algo.base import LossOutput, Metric
from trainer.data.batch import TrainBatch
from trainer.learners.critic import ValueHead
from trainer.learners.head import token_scores
from trainer.learners.passes import Pass, passes_of
from trainer.learners.picked import Picked
from trainer.learners.update import AdamUpdate, Update
from trainer.protocols.engines import LossFn, OptimOptions, Weights
from trainer.protocols.memory import Part
from trainer.protocols.net import PolicyNet, ScoresItself, SharesPrefixes, host_weights, showing

__all__ = ["STATE_FILE", "Scored", "Told", "TorchTrain", "moved_to", "system_errors"]

STATE_FILE = "train.safetensors"


class TorchTrain:
    """A `TrainEngine` over a network. `export` writes the model for `--model FOLDER`."""

    def __init__(
        self,
        net: PolicyNet | ScoresItself,
        optim: OptimOptions,
        *,
        export: Callable[[Path], None],
        device: torch.device | None = None,
        update: Update | None = None,
    ) -> None:
        """`update`: what moves the network's parameters; None: AdamW in this process."""
        self.net = net
        self._export = export
        self._device = device or torch.device("cpu")
        self._options = optim
        self.largest: Part | None = None
        self._policy: Update = update or AdamUpdate(dict(net.named_parameters()), optim)
        self._critic: ValueHead | None = None
        self._critics: Update | None = None
        self._critic_lr = 0.0

    def add_critic(self, *, lr: float, seed: int) -> None:
        """Begin a critic that says 0 everywhere and learns at the rate `lr`, whatever the policy's."""
        if self._critic is not None:
            raise ValueError("this engine has a critic already: call add_critic once.")
        self._critic = ValueHead(self.net.width, seed).to(self._device)
        named = {f"critic.{name}": value for name, value in self._critic.named_parameters()}
        self._critics, self._critic_lr = self._critic_update(named), lr

    def _critic_update(self, named: dict[str, torch.nn.Parameter]) -> Update:
        return AdamUpdate(named, self._options.model_copy(update={"weight_decay": 0.0}))

    @torch.no_grad()
    def logprobs(self, batch: TrainBatch, weights: Weights | None = None) -> torch.Tensor:
        """Return log pi_theta (`BT`, float32, on the batch's device) of every trained token, 0 elsewhere.

        With `weights`, of the policy that has them. Raise `InvalidArgument` where they belong to another model.
        """
        if weights is not None:
            with showing(self.net, weights):
                return self.logprobs(batch)
        return self._part_by_part(batch, lambda part: self._finite(part).logprobs_BT)

    @torch.no_grad()
    def values(self, batch: TrainBatch) -> torch.Tensor:
        """Return V (`BT`, float32, on the batch's device) of the state before every token of the mask, 0 elsewhere."""
        values_BT = self._part_by_part(batch, self._values)
        broken = int((~torch.isfinite(values_BT)).sum())
        if broken:
            self._refuse(f"the critic gives {broken} states a value that is not finite")
        return values_BT

    def _part_by_part(self, batch: TrainBatch, compute: Callable[[TrainBatch], torch.Tensor]) -> torch.Tensor:
        result_BT = torch.zeros(batch.tokens_BT.shape, device=batch.tokens_BT.device)
        numbered = replace(batch, trajectory_index_B=torch.arange(len(result_BT)))
        for part, *_ in self._passes(numbered):
            width = part.tokens_BT.shape[1]
            result_BT[part.trajectory_index_B, :width] = compute(part).to(result_BT.device)
        return result_BT

    def shared_width(self) -> int:
        """Return the network's width where it computes once what rows begin with in common, else 0."""
        return self.net.width if isinstance(self.net, SharesPrefixes) and self.net.shares else 0

    def _passes(self, batch: TrainBatch) -> list[Pass]:
        return passes_of(batch, self._options.microbatch_tokens, shares=self.shared_width())

    def step(self, batch: TrainBatch, loss: LossFn, *, lr: float) -> dict[str, float]:
        """One AdamW update at rate `lr`; return the loss's metrics (means), `loss` and `grad_norm` (before clipping).

        Gradients add up over microbatches, so the loss must divide by the batch's constants. Raise
        `FloatingPointError` with parameters and optimizer untouched when a log-probability, a loss or the gradient is not
        finite.
        A batch that trains nothing changes nothing, nor does one whose gradient is 0: momentum alone moves no parameter.
        """
        self._forget()
        told = Told()
        for each in self._passes(batch):
            self.largest = Part(each.tokens, each.trained).beside(self.largest)
            part = moved_to(each.batch, self._device)
            scores = self._finite(part)
            output = loss(scores.beside(part), scores.logprobs_BT)
            value = float(output.loss.detach())
            if value != value or abs(value) == float("inf"):
                self._refuse(f"the loss is {value}")
            self._policy.backward(output.loss, last=False)
            told.add(output)
        norms = self._update(lr)
        return {**told.means(), **norms, "lr": lr}

    def weights(self) -> Weights:
        """Return the parameters as float32 host arrays; on CPU views that stay valid until the next `step`."""
        return host_weights(self.net)

    def save(self, folder: Path) -> None:
        """Write parameters and optimizer state to one file in `folder`, whole or not at all; whoever saves the folder
        brings it to the disk. Raise `OSError`.
        """
        self._write(folder, *self._state())

    def _write(self, folder: Path, tensors: dict[str, torch.Tensor], steps: dict[str, float]) -> None:
        metadata = {"steps": json.dumps(steps)}
        with system_errors(folder / STATE_FILE):
            write_whole(
                folder / STATE_FILE, lambda path: save_file(tensors, path, metadata=metadata), durable=False
            )

    def _state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return parameters and moments on the host, whole, and how many updates each parameter had."""
        tensors, steps = self._policy.state()
        if self._critics is not None:
            more, more_steps = self._critics.state()
            tensors, steps = {**tensors, **more}, {**steps, **more_steps}
        return tensors, steps

    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Raise `InvalidArgument` when the file is missing, damaged or another model's."""
        path = folder / STATE_FILE
        try:
            with safe_open(path, framework="pt") as file:
                stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
                steps = json.loads(file.metadata()["steps"])
        except (OSError, SafetensorError) as error:
            raise InvalidArgument(
                f"cannot read the training state {path}: {error}. Remove the folder {folder.name} to resume from the "
                "checkpoint before it."
            ) from error
        updates = [update for update in (self._policy, self._critics) if update is not None]
        expected = {f"model.{name}": shape for each in updates for name, shape in each.shapes().items()}
        found = {name: value.shape for name, value in stored.items() if name.startswith("model.")}
        if found != expected:
            raise InvalidArgument(
                f"{path} belongs to another model: its parameter names or shapes differ. "
                "Resume with the model and engine options of the run that wrote it."
            )
        for update in updates:
            update.load(stored, steps)

    def export(self, folder: Path) -> None:
        """Write the model in the form that `--model FOLDER` reads again. Raise `OSError`."""
        with system_errors(folder):
            self._export(folder)

    def _refuse(self, what: str) -> None:
        self._forget()
        raise FloatingPointError(
            f"{what}; the update was not applied. Lower the learning rate or look for extreme advantages."
        )

    def _forget(self) -> None:
        self._policy.forget()
        if self._critics is not None:
            self._critics.forget()

    def _update(self, lr: float) -> dict[str, float]:
        """Clip and apply the gradients; return their norms. The critic's is apart: it must not shrink the policy's."""
        norm, most = self._bounds(self._policy)
        norms = {"grad_norm": norm, "grad_clipped": float(norm > most)}
        if self._critic is None or self._critics is None:
            _apply(self._policy, lr, norm, most)
            return norms
        critic_norm, critic_most = self._bounds(self._critics)
        if self._critic.outer.grad is not None:
            norms["critic/grad_norm"] = critic_norm
        _apply(self._policy, lr, norm, most)
        _apply(self._critics, self._critic_lr, critic_norm, critic_most)
        return norms

    def _bounds(self, update: Update) -> tuple[float, float]:
        """Return the norm of a gradient, which is refused where it is not finite, and the largest that it may have."""
        norm = update.norm()
        if norm != norm or norm == float("inf"):
            self._refuse(f"the gradient norm is {norm}")
        most = self._options.grad_clip
        if norm and self._options.grad_clip_usual and (usual := update.usual_norm()):
            most = min(most, self._options.grad_clip_usual * usual)
        return norm, most

    @property
    def tells_entropy(self) -> bool:
        """Return whether it knows a token's whole distribution: to temper it, and to tell its entropy."""
        return not isinstance(self.net, ScoresItself)

    def _finite(self, batch: TrainBatch) -> Scored:
        """Return `_scores`, refusing the update before a loss could mask what is not finite and go on."""
        scores = self._scores(batch)
        broken = int((~torch.isfinite(scores.logprobs_BT.detach())).sum())
        if broken:
            self._refuse(f"the policy gives {broken} trained tokens a log-probability that is not finite")
        return scores

    def _scores(self, batch: TrainBatch) -> Scored:
        """Return what the network says of the trained tokens, with a gradient."""
        wanted = self._critic if batch.returns_BT is not None else None
        picked = Picked.of(batch, self._device)
        if picked is None:
            nothing_BT = self._nothing(batch)
            return Scored(
                nothing_BT,
                None if wanted is None else nothing_BT,
                nothing_BT if batch.wants_entropy else None,
            )
        entropy_N = None
        if isinstance(self.net, ScoresItself):
            logprobs_N, hidden_ND = picked.scored(self.net)
        else:
            hidden_ND = picked.hidden(self.net)
            logprobs_N, entropy_N = token_scores(
                self.net.logits,
                self.net.vocabulary,
                hidden_ND,
                picked.targets_N,
                temperature_N=picked.temperature_N,
                entropy=batch.wants_entropy,
            )
        return Scored(
            picked.lay(logprobs_N, batch),
            None if wanted is None else picked.lay(wanted(hidden_ND), batch),
            None if entropy_N is None else picked.lay(entropy_N, batch),
        )

    def _values(self, batch: TrainBatch) -> torch.Tensor:
        """Return `values_BT` alone."""
        if self._critic is None:
            raise ValueError("this engine has no critic: call add_critic first.")
        picked = Picked.of(batch, self._device)
        if picked is None:
            return self._nothing(batch)
        return picked.lay(self._critic(picked.hidden(self.net)), batch)

    def _nothing(self, batch: TrainBatch) -> torch.Tensor:
        """Return the scores of a batch that trains no token."""
        return torch.zeros(batch.tokens_BT.shape, device=self._device)


class Scored(NamedTuple):
    """What a network says of a batch's trained tokens, 0 elsewhere."""

    logprobs_BT: torch.Tensor
    values_BT: torch.Tensor | None
    """For a critic with something to learn."""
    entropy_BT: torch.Tensor | None
    """Where the batch wants it."""

    def beside(self, batch: TrainBatch) -> TrainBatch:
        """Return the batch with what a loss reads beside the log-probabilities."""
        return replace(batch, values_BT=self.values_BT, entropy_BT=self.entropy_BT)


def _apply(update: Update, lr: float, norm: float, most: float) -> None:
    """Take a step, unless there is no gradient: AdamW's momentum and decay alone move nothing."""
    if norm:
        update.apply(lr, most)
    else:
        update.forget()


@dataclass(slots=True)
class Told:
    """What the losses of a step's parts add up to."""

    loss: float = 0.0
    sums: dict[str, Metric] = field(default_factory=dict)

    def add(self, output: LossOutput) -> None:
        """Add a part."""
        self.loss += float(output.loss.detach())
        for name, metric in output.metrics.items():
            before = self.sums.get(name, Metric(0.0, 0.0))
            self.sums[name] = Metric(before.total + metric.total, before.weight + metric.weight)

    def means(self) -> dict[str, float]:
        """Return the means of what was reported, and the loss."""
        means = {name: sum_.total / sum_.weight for name, sum_ in self.sums.items() if sum_.weight}
        return {**means, "loss": self.loss}


def moved_to(batch: TrainBatch, device: torch.device) -> TrainBatch:
    """Return the batch with its tensors on a device."""
    if device == batch.tokens_BT.device:
        return batch
    values = {each.name: getattr(batch, each.name) for each in fields(batch)}
    moved = {name: value.to(device) for name, value in values.items() if isinstance(value, torch.Tensor)}
    return replace(batch, **moved)  # type: ignore[arg-type]


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Turn what safetensors raises for a refused write into the `OSError` that the system gave it."""
    try:
        yield
    except SafetensorError as error:
        given = re.search(r"\(os error (\d+)\)", str(error))
        number = int(given[1]) if given else errno.EIO
        reason = os.strerror(number) if given else str(error)
        raise OSError(number, reason, str(path)) from error
