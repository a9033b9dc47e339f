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
from trainer.data.build import microbatches
from trainer.learners.critic import ValueHead
from trainer.learners.head import token_scores
from trainer.learners.update import AdamUpdate, Update
from trainer.protocols.engines import LossFn, OptimOptions, Weights
from trainer.protocols.memory import Part
from trainer.protocols.net import PolicyNet, ScoresItself, host_weights, showing

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
        for part in microbatches(numbered, self._options.microbatch_tokens):
            width = part.tokens_BT.shape[1]
            result_BT[part.trajectory_index_B, :width] = compute(part).to(result_BT.device)
        return result_BT

    def step(self, batch: TrainBatch, loss: LossFn, *, lr: float) -> dict[str, float]:
        """One AdamW update at rate `lr`; return the loss's metrics (means), `loss` and `grad_norm` (before clipping).

        Gradients add up over microbatches, so the loss must divide by the batch's constants. Raise
        `FloatingPointError` with parameters and optimizer untouched when a log-probability, a loss or the gradient is not
        finite.
        A batch that trains nothing changes nothing, nor does one whose gradient is 0: momentum alone moves no parameter.
        """
        self._forget()
        told = Told()
        for part in microbatches(batch, self._options.microbatch_tokens):
            part = moved_to(part, self._device)
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
        picked = _Picked.of(batch, self._device)
        if picked is None:
            nothing_BT = self._nothing(batch)
            return Scored(
                nothing_BT,
                None if wanted is None else nothing_BT,
                nothing_BT if batch.wants_entropy else None,
            )
        if torch.is_grad_enabled():
            self.largest = Part(picked.tokens_UT.numel(), len(picked.targets_N)).beside(self.largest)
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
        picked = _Picked.of(batch, self._device)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Picked:
    """The trained tokens of a batch, and the distinct sequences (one segment each) that their values hang on.

    Rollouts of one task often share prompt and action; what is the same is computed once, forward and backward.
    """

    tokens_UT: torch.Tensor
    at_UM: torch.Tensor
    """Position before each trained token; filled up with 0."""
    source_N: torch.Tensor
    """Index of the trained token's place in `at_UM`, flattened."""
    row_N: torch.Tensor
    column_N: torch.Tensor
    targets_N: torch.Tensor
    temperature_N: torch.Tensor | None
    """None: nothing is tempered."""

    def scored(self, net: ScoresItself) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens' log-probabilities (`N`) and `hidden`, of a network that gives both at once."""
        return net.picked(self.tokens_UT, self.at_UM, self.source_N, self.targets_N)

    def hidden(self, net: PolicyNet | ScoresItself) -> torch.Tensor:
        """Return the final hidden states (`ND`) that the tokens' distributions come from."""
        if isinstance(net, ScoresItself):
            return self.scored(net)[1]
        # index_select, because its backward pass adds duplicates in a fixed order.
        return net.hidden_at(self.tokens_UT, self.at_UM).flatten(0, 1).index_select(0, self.source_N)

    def lay(self, values_N: torch.Tensor, batch: TrainBatch) -> torch.Tensor:
        """Return the values where their tokens stand (`BT`), 0 elsewhere."""
        empty_BT = torch.zeros(batch.tokens_BT.shape, device=values_N.device)
        return empty_BT.index_put((self.row_N, self.column_N), values_N)

    @staticmethod
    def of(batch: TrainBatch, device: torch.device) -> _Picked | None:
        """Find the trained tokens; None if there are none. Segments without any are left out.

        The first token of a segment has no distribution; training it is refused with `InvalidArgument`.
        """
        segments_BT, tokens_BT = batch.segment_ids_BT.cpu(), batch.tokens_BT.cpu()
        row_N, column_N = (batch.loss_mask_BT | (batch.imitation_BT != 0)).cpu().nonzero(as_tuple=True)
        if not len(row_N):
            return None
        width = segments_BT.shape[1]
        begins_BT = torch.ones_like(segments_BT, dtype=torch.bool)
        begins_BT[:, 1:] = segments_BT[:, 1:] != segments_BT[:, :-1]
        start_N = torch.where(begins_BT, torch.arange(width), 0).cummax(1).values[row_N, column_N]
        if bool((start_N == column_N).any()):
            raise InvalidArgument(
                "a batch trains the first token of a segment, which nothing precedes. Mask the prompt's tokens."
            )
        # A segment is named by (row, start); `nonzero` is in row-major order, so equal names are neighbours.
        names_S, segment_N, counts_S = torch.unique_consecutive(
            row_N * width + start_N, return_inverse=True, return_counts=True
        )
        rank_N = torch.arange(len(row_N)) - (counts_S.cumsum(0) - counts_S)[segment_N]
        at_SM = torch.zeros(len(names_S), int(counts_S.max()), dtype=torch.int64)
        at_SM[segment_N, rank_N] = column_N - start_N - 1
        # Only what precedes a segment's last trained token matters to any of them; the rest is padding.
        place_T = torch.arange(int(at_SM.max()) + 1)
        source_ST = ((names_S % width)[:, None] + place_T).clamp_max(width - 1)
        tokens_ST = tokens_BT[(names_S // width)[:, None], source_ST]
        tokens_ST = torch.where(place_T <= at_SM.amax(1, keepdim=True), tokens_ST, 0)
        first_U, distinct_S = _distinct(torch.cat((tokens_ST, at_SM), dim=1))
        return _Picked(
            tokens_UT=tokens_ST[first_U].to(device),
            at_UM=at_SM[first_U].to(device),
            source_N=(distinct_S[segment_N] * at_SM.shape[1] + rank_N).to(device),
            row_N=row_N.to(device),
            column_N=column_N.to(device),
            targets_N=tokens_BT[row_N, column_N].to(device),
            temperature_N=_temperatures(batch, row_N, column_N, device),
        )


def _temperatures(
    batch: TrainBatch, row_N: torch.Tensor, column_N: torch.Tensor, device: torch.device
) -> torch.Tensor | None:
    if batch.temperature == 1:
        return None
    sampled_N = batch.loss_mask_BT.cpu()[row_N, column_N]
    return torch.where(sampled_N, batch.temperature, 1.0).to(device)


def _distinct(rows_SK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of each distinct row's first occurrence, in order, and which of them every row equals."""
    number: dict[bytes, int] = {}
    first_U: list[int] = []
    distinct_S = []
    for s, row in enumerate(rows_SK.numpy()):
        u = number.setdefault(row.tobytes(), len(number))
        if u == len(first_U):
            first_U.append(s)
        distinct_S.append(u)
    return torch.tensor(first_U), torch.tensor(distinct_S)


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
