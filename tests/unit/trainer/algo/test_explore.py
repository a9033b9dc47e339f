"""The terms that keep a policy trying, against float64 references that share no code with them."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_cases import rows_of, weighted_likelihood

from trainer.algo.base import LossOutput
from trainer.algo.terms.explore import Explored, entropy_mean
from trainer.data.batch import Counts, TrainBatch
from trainer.data.build import microbatches
from trainer.learners import head
from trainer.learners.head import token_scores
from trainer.learners.torch_train import TorchTrain
from trainer.models.tiny.model import TinyModel, TinyShape
from trainer.protocols.engines import OptimOptions

SHAPE = TinyShape(vocabulary=96, layers=2, width=16, heads=2, max_context=64)


def nothing(batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
    return LossOutput(logprobs_BT.sum() * 0.0)


def batch_of(**changes: object) -> TrainBatch:
    """Return rows of several turns, as the batch builder numbers them."""
    batch = rows_of([9, 14, 12], trained=5)
    opens = torch.full_like(batch.tokens_BT, -1)
    for row, mask in enumerate(batch.loss_mask_BT):
        first = int(mask.nonzero()[0])
        opens[row, first], opens[row, first + 2] = 0, 1  # turns of two and of three tokens
    return replace(
        batch,
        opens_turn_BT=opens,
        counts=Counts(trajectories=3, tokens=15, turns=6),
        wants_entropy=True,
        **changes,  # type: ignore[arg-type]
    )


def trained() -> TorchTrain:
    net = TinyModel(SHAPE, 3)
    with torch.no_grad():
        net.head.normal_(generator=torch.Generator().manual_seed(1))  # a fresh one is uniform
    return TorchTrain(net, OptimOptions(), export=lambda folder: None)


def gradients(engine: TorchTrain, batch: TrainBatch, loss: Explored) -> tuple[float, dict[str, torch.Tensor]]:
    scores = engine._finite(batch)
    value = loss(scores.beside(batch), scores.logprobs_BT).loss
    value.backward()
    found = {name: each.grad.clone() for name, each in engine.net.named_parameters() if each.grad is not None}
    engine._forget()
    return float(value.detach()), found


def in_float64(
    net: TinyModel, batch: TrainBatch, over: str, temperature: float
) -> tuple[float, dict[str, torch.Tensor]]:
    """Return minus the mean entropy and its gradient, token by token in float64, by the definition."""
    net = copy.deepcopy(net).double()
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(batch.tokens_BT)):
        turn = np.cumsum(batch.opens_turn_BT[row].numpy() >= 0)  # type: ignore[index]
        places = batch.loss_mask_BT[row].nonzero()[:, 0].tolist()
        for place in places:
            tokens = batch.tokens_BT[row : row + 1, :place]
            hidden = net.hidden_at(tokens, torch.tensor([[place - 1]]))[0]
            logits = net.logits(hidden)[0] / temperature
            logits = logits[torch.isfinite(logits)]
            p = torch.exp(logits - logits.max()) / torch.exp(logits - logits.max()).sum()
            entropy = -(p * torch.log(p)).sum()
            own = sum(turn[other] == turn[place] for other in places)
            total = total + (entropy / 15 if over == "tokens" else entropy / own / 6)
    (-total).backward()
    return -float(total.detach()), {n: v.grad for n, v in net.named_parameters() if v.grad is not None}


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize("over", ["tokens", "turns"])
def test_the_entropy_term_is_that_of_a_float64_reference(monkeypatch, over, temperature, pieces):
    if pieces:  # computed a few rows at a time, and again in the backward pass
        monkeypatch.setattr(head, "HEAD_ELEMENTS", 4 * SHAPE.vocabulary)
    engine, batch = trained(), batch_of(temperature=temperature)
    value, found = gradients(engine, batch, Explored(nothing, 1.0, 0.0, over))
    expected, reference = in_float64(engine.net, batch, over, temperature)  # type: ignore[arg-type]
    assert abs(value - expected) < 1e-6
    assert value < -0.5
    assert found.keys() >= reference.keys()
    for name, gradient in reference.items():
        assert float((found[name].double() - gradient).abs().max()) < 1e-6, name
    assert max(float(g.abs().max()) for g in reference.values()) > 1e-3


@pytest.mark.parametrize("over", ["tokens", "turns"])
def test_microbatches_add_up_to_the_batch(over):
    engine, batch = trained(), batch_of()
    loss = Explored(weighted_likelihood, 0.3, 0.0, over)
    whole, gradient = gradients(engine, batch, loss)
    parts = [gradients(engine, part, loss) for part in microbatches(batch, 16)]
    assert len(parts) == 3
    assert sum(value for value, _ in parts) == pytest.approx(whole, abs=1e-6)
    for name, each in gradient.items():
        torch.testing.assert_close(sum(part[name] for _, part in parts), each, atol=1e-6, rtol=1e-4)


def test_the_divergence_from_the_warm_up_is_k3_over_all_tokens():
    batch = batch_of()
    mask = batch.loss_mask_BT
    warm = torch.where(mask, torch.linspace(-2, -0.1, mask.numel()).view(mask.shape), torch.nan)
    logprobs = torch.where(mask, torch.tensor(-0.7), torch.nan).requires_grad_()
    output = Explored(nothing_of(mask), 0.0, 0.4)(replace(batch, warmup_logprobs_BT=warm), logprobs)
    x = -0.7 - warm[mask].double().numpy()
    assert float(output.loss.detach()) == pytest.approx(0.4 * (np.exp(-x) - 1 + x).sum() / 15, abs=1e-6)
    assert output.metrics["explore/kl"].weight == 15
    output.loss.backward()
    expected = 0.4 * (1 - np.exp(-x)) / 15
    np.testing.assert_allclose(logprobs.grad[mask].numpy(), expected, atol=1e-6)  # type: ignore[index]
    assert not logprobs.grad[~mask].any()  # type: ignore[index]


def nothing_of(mask: torch.Tensor):
    return lambda batch, logprobs_BT: LossOutput(
        torch.where(mask, logprobs_BT, 0.0).sum() * 0.0, {}, {"all": mask}
    )


def test_no_token_is_left_out_under_a_term():
    batch = batch_of()
    assert nothing_of(batch.loss_mask_BT)(batch, torch.zeros(batch.tokens_BT.shape)).masked
    entropies = torch.ones(batch.tokens_BT.shape)
    output = Explored(nothing_of(batch.loss_mask_BT), 0.1, 0.0)(
        replace(batch, entropy_BT=entropies), torch.zeros(batch.tokens_BT.shape)
    )
    assert not output.masked
    assert float(output.loss) == pytest.approx(-0.1)


def test_a_term_whose_input_is_missing_is_refused():
    batch = batch_of()
    with pytest.raises(ValueError, match="entropy_BT"):
        Explored(nothing, 0.1, 0.0)(batch, torch.zeros(batch.tokens_BT.shape))
    with pytest.raises(ValueError, match="warmup_logprobs_BT"):
        Explored(nothing, 0.0, 0.1)(batch, torch.zeros(batch.tokens_BT.shape))


def test_a_poisoned_entropy_outside_the_mask_changes_nothing():
    batch = batch_of()
    clean = torch.rand(batch.tokens_BT.shape, generator=torch.Generator().manual_seed(0))
    for poison in (torch.nan, 1e6):
        spoilt = torch.where(batch.loss_mask_BT, clean, poison).requires_grad_()
        for over in ("tokens", "turns"):
            value = entropy_mean(batch, spoilt, over)  # type: ignore[arg-type]
            assert value.item() == entropy_mean(batch, clean, over).item()  # type: ignore[arg-type]
            value.backward()
        assert torch.isfinite(spoilt.grad).all()  # type: ignore[arg-type]


def test_temperature_divides_the_logits_of_its_tokens_alone():
    logits = torch.tensor([[0.0, 1.0, -2.0], [0.5, 0.0, 1.0]])
    heat = torch.tensor([2.0, 1.0])
    found, entropy = token_scores(
        lambda hidden: hidden, 3, logits, torch.tensor([1, 2]), temperature_N=heat, entropy=True
    )
    expected = torch.log_softmax(logits / heat[:, None], 1)
    assert found.tolist() == pytest.approx([float(expected[0, 1]), float(expected[1, 2])])
    assert entropy is not None
    torch.testing.assert_close(entropy, -(expected.exp() * expected).sum(1))
