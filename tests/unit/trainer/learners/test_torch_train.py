"""The generic trainer: where the batch is cut never matters, a broken update leaves no trace, a resume is exact."""

import errno
import resource
from contextlib import contextmanager
from dataclasses import fields, replace

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rock_env.errors import InvalidArgument
from trainer.algo.base import LossOutput, Metric
from trainer.data.batch import TrainBatch
from trainer.learners import head
from trainer.learners.torch_train import STATE_FILE, TorchTrain
from trainer.models.tiny.model import TinyModel, TinyShape
from trainer.models.tiny.tokenizer import SPECIALS
from trainer.protocols.engines import OptimOptions

SHAPE = TinyShape(vocabulary=30, layers=2, width=16, heads=2, max_context=32)


def engine(seed=0, **optim):
    net = TinyModel(SHAPE, seed)
    torch.nn.init.normal_(net.head, std=0.3, generator=torch.Generator().manual_seed(seed))
    return TorchTrain(net, OptimOptions(**{"lr": 1e-2, **optim}), export=lambda folder: None)


def batch_of(lengths, *, trained=2, seed=0):
    """Return rows of the given lengths whose last `trained` tokens train, each row one chunk."""
    generator = torch.Generator().manual_seed(seed)
    rows, width = len(lengths), max(lengths)
    place = torch.arange(width)
    length_B = torch.tensor(lengths)[:, None]
    real = place < length_B
    mask = real & (place >= length_B - trained)
    tokens = torch.randint(SPECIALS, SHAPE.vocabulary, (rows, width), generator=generator)
    return TrainBatch(
        tokens_BT=torch.where(real, tokens, 0),
        segment_ids_BT=real.long(),
        loss_mask_BT=mask,
        rollout_logprobs_BT=torch.where(mask, -1.0, 0.0),
        prox_logprobs_BT=None,
        advantages_BT=torch.where(mask, torch.randn(rows, 1, generator=generator), 0.0),
        positive_BT=mask,
        chunk_index_BT=torch.where(mask, torch.arange(rows)[:, None], -1),
        chunks=rows,
        trajectory_index_B=torch.arange(rows),
        imitation_BT=torch.zeros(rows, width),
        policy_version_BT=torch.where(mask, 0, -1),
        normalizer=float(rows),
        imitation_normalizer=1.0,
    )


def loss(batch, logprobs_BT):
    terms = torch.where(batch.loss_mask_BT, logprobs_BT, 0.0) * batch.advantages_BT
    count = int(batch.loss_mask_BT.sum())
    mean = Metric(float(torch.where(batch.loss_mask_BT, logprobs_BT, 0.0).sum().detach()), count)
    return LossOutput(-terms.sum() / batch.normalizer, {"logprob": mean})


def expected_logprobs(train, batch):
    """Compute log-probs row by row, with no batching at all."""
    result = torch.zeros(batch.tokens_BT.shape)
    for b in range(len(result)):
        row = batch.tokens_BT[b, : int(batch.segment_ids_BT[b].count_nonzero())]
        hidden = train.net.hidden_at(row[None], torch.arange(len(row))[None])[0]
        logprobs = torch.log_softmax(train.net.logits(hidden), -1)
        values = logprobs[:-1].gather(1, row[1:, None])[:, 0]
        result[b, 1 : len(row)] = values
    return torch.where(batch.loss_mask_BT, result, 0.0).detach()


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.net.parameters(), two.net.parameters(), strict=True))


def pack(batch, pairs):
    """Put the rows of each pair into one row, as segments 1 and 2."""
    width = 2 * batch.tokens_BT.shape[1]
    changed = {}
    for each in fields(batch):
        value = getattr(batch, each.name)
        if each.name.endswith("_BT") and value is not None:
            changed[each.name] = value.new_full((len(pairs), width), -1 if value.dtype == torch.int64 else 0)
    changed["tokens_BT"].zero_()
    changed["segment_ids_BT"].zero_()
    for row, pair in enumerate(pairs):
        start = 0
        for segment, b in enumerate(pair, 1):
            length = int(batch.segment_ids_BT[b].count_nonzero())
            for name, value in changed.items():
                value[row, start : start + length] = getattr(batch, name)[b, :length]
            changed["segment_ids_BT"][row, start : start + length] = segment
            start += length
    return replace(batch, trajectory_index_B=torch.arange(len(pairs)), **changed)


def test_logprobs_equal_the_row_by_row_forward():
    train, batch = engine(), batch_of([5, 9, 12, 9], trained=3)
    torch.testing.assert_close(train.logprobs(batch), expected_logprobs(train, batch), atol=1e-5, rtol=1e-5)


def test_imitated_tokens_count_as_trained():
    train, batch = engine(), batch_of([6, 8])
    moved = replace(
        batch,
        imitation_BT=batch.loss_mask_BT.float() * 0.3,
        loss_mask_BT=torch.zeros_like(batch.loss_mask_BT),
    )
    assert torch.equal(train.logprobs(moved), train.logprobs(batch))


def test_logprobs_are_invariant_to_microbatches():
    batch = batch_of([5, 9, 12, 9, 20, 3])
    whole, parts = engine(), engine(microbatch_tokens=24)
    torch.testing.assert_close(parts.logprobs(batch), whole.logprobs(batch), atol=1e-6, rtol=1e-6)


def test_a_step_is_invariant_to_microbatches():
    batch = batch_of([5, 9, 12, 9, 20, 3])
    whole, parts = engine(), engine(microbatch_tokens=24)
    one, two = whole.step(batch, loss, lr=1e-2), parts.step(batch, loss, lr=1e-2)
    assert one == pytest.approx(two, rel=1e-4)
    for a, b in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_it_tells_its_largest_pass():
    batch = batch_of([5, 9, 12, 9, 20, 3])
    whole, parts = engine(), engine(microbatch_tokens=24)
    whole.logprobs(batch)
    assert whole.largest is None
    for train in (whole, parts):
        train.step(batch, loss, lr=1e-2)
    assert whole.largest.trained == int(batch.loss_mask_BT.sum()) > parts.largest.trained
    assert whole.largest.tokens > 24 >= parts.largest.tokens


def test_packed_segments_equal_rows_of_their_own():
    batch = batch_of([5, 9, 12, 9])
    packed = pack(batch, [(0, 1), (3, 2)])
    train = engine()
    rows, packs = train.logprobs(batch), train.logprobs(packed)
    torch.testing.assert_close(packs[packed.loss_mask_BT][:4], rows[:2][batch.loss_mask_BT[:2]])
    assert engine().step(packed, loss, lr=1e-2) == pytest.approx(
        engine().step(batch, loss, lr=1e-2), rel=1e-4
    )


def test_equal_rows_are_computed_once_and_count_as_often_as_they_occur():
    batch = batch_of([9, 9, 12, 9, 9, 12])
    tokens_BT = batch.tokens_BT.clone()
    tokens_BT[[1, 3]] = tokens_BT[0].clone()
    tokens_BT[4, :8] = tokens_BT[
        0, :8
    ].clone()  # same up to the last token, which is predicted and never read
    batch = replace(batch, tokens_BT=tokens_BT)
    shared, single = engine(), engine(microbatch_tokens=1)
    widths = []
    forward = shared.net.hidden_at
    shared.net.hidden_at = lambda tokens, at: (widths.append(len(tokens)), forward(tokens, at))[1]
    expected = single.step(batch, loss, lr=1e-2)
    assert shared.step(batch, loss, lr=1e-2) == pytest.approx(expected, rel=1e-4)
    assert widths == [3]
    torch.testing.assert_close(shared.logprobs(batch), expected_logprobs(shared, batch), atol=1e-5, rtol=1e-5)


def test_a_large_head_in_pieces_gives_the_same_gradient(monkeypatch):
    batch = batch_of([5, 9, 12, 9], trained=4)
    whole = engine()
    expected = whole.step(batch, loss, lr=1e-2)
    monkeypatch.setattr(head, "HEAD_ELEMENTS", 3 * SHAPE.vocabulary)
    pieces = engine()
    assert pieces.step(batch, loss, lr=1e-2) == pytest.approx(expected, rel=1e-4)


def test_the_loss_sees_a_gradient_only_at_trained_tokens():
    seen = []

    def spy(batch, logprobs_BT):
        logprobs_BT.retain_grad()
        seen.append((batch, logprobs_BT))
        return LossOutput(logprobs_BT.sum())

    batch = batch_of([5, 9])
    engine().step(batch, spy, lr=1e-2)
    ((part, logprobs_BT),) = seen
    assert not logprobs_BT[~part.loss_mask_BT].detach().any()
    assert (logprobs_BT[part.loss_mask_BT] < 0).all()


def test_steps_raise_the_probability_of_what_is_rewarded():
    train, batch = engine(), batch_of([6, 8, 10])
    batch = replace(batch, advantages_BT=batch.loss_mask_BT.float())
    before = float(train.logprobs(batch).sum())
    history = [train.step(batch, loss, lr=1e-2) for _ in range(10)]
    assert float(train.logprobs(batch).sum()) > before + 1.0
    assert history[-1]["loss"] < history[0]["loss"]
    assert history[0]["logprob"] == pytest.approx(before / 6, rel=1e-4)


def test_the_rate_of_the_call_is_the_rate_of_the_update():
    still, train = engine(), engine()
    train.step(batch_of([6]), loss, lr=0.0)
    assert same(still, train)
    train.step(batch_of([6]), loss, lr=1e-3)
    assert not same(still, train)


def test_gradients_are_clipped_to_the_global_norm():
    def huge(batch, logprobs_BT):
        output = loss(batch, logprobs_BT)
        return LossOutput(output.loss * 1e6)

    seen = {}

    def remember(optimizer, *_):
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        seen["norm"] = float(torch.stack([g.norm() for g in grads]).norm())

    train = engine(grad_clip=0.5)
    handle = register_optimizer_step_pre_hook(remember)
    metrics = train.step(batch_of([6, 7]), huge, lr=1e-3)
    handle.remove()
    assert metrics["grad_norm"] > 100
    assert seen["norm"] == pytest.approx(0.5, rel=1e-3)


@contextmanager
def norms_applied():
    """Yield the norms of the gradients that optimizers apply, one for each update."""
    seen = []

    def remember(optimizer, *_):
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        seen.append(float(torch.stack([g.norm() for g in grads]).norm()))

    handle = register_optimizer_step_pre_hook(remember)
    try:
        yield seen
    finally:
        handle.remove()


def scaled(factor):
    def times(batch, logprobs_BT):
        return LossOutput(loss(batch, logprobs_BT).loss * factor)

    return times


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_gradient_is_clipped_to_a_multiple_of_the_usual_one_whatever_its_unit(unit):
    """The first update has nothing to be compared with; equal ones pass; one of a hundred times the length does not."""
    train, batch = engine(grad_clip=1e6, grad_clip_usual=2.0, beta2=0.9), batch_of([6, 7])
    with norms_applied() as seen:
        told = [train.step(batch, scaled(unit), lr=0.0) for _ in range(6)]
        outlier = train.step(batch, scaled(100 * unit), lr=0.0)
    usual = told[0]["grad_norm"]
    assert [each["grad_clipped"] for each in told] == [0.0] * 6
    assert seen[:6] == pytest.approx([usual] * 6, rel=1e-4)
    assert outlier["grad_clipped"] == 1.0
    assert outlier["grad_norm"] == pytest.approx(100 * usual, rel=1e-4)
    assert seen[6] == pytest.approx(2 * usual, rel=1e-3)


def test_the_smaller_of_both_bounds_holds():
    train, batch = engine(grad_clip=0.5, grad_clip_usual=1e6), batch_of([6, 7])
    with norms_applied() as seen:
        told = [train.step(batch, scaled(1e3), lr=0.0) for _ in range(2)]
    assert [each["grad_clipped"] for each in told] == [1.0, 1.0]
    assert seen == pytest.approx([0.5, 0.5], rel=1e-3)


def test_what_is_usual_survives_a_checkpoint(tmp_path):
    train, batch = engine(grad_clip_usual=1.5), batch_of([6, 7])
    for factor in (1.0, 1.3, 0.7):
        train.step(batch, scaled(factor), lr=1e-2)
    train.save(tmp_path)
    again = engine(seed=3, grad_clip_usual=1.5)
    again.load(tmp_path)
    told = [each.step(batch, scaled(9.0), lr=1e-2) for each in (train, again)]
    assert told[0] == told[1]
    assert told[0]["grad_clipped"] == 1.0
    assert same(train, again)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_leaves_no_trace(bad):
    train, twin, batch = engine(), engine(), batch_of([6, 8])
    train.step(batch, loss, lr=1e-2)
    twin.step(batch, loss, lr=1e-2)
    with pytest.raises(FloatingPointError, match="not applied"):
        train.step(batch, lambda b, lp: LossOutput(lp.sum() * 0 + bad), lr=1e-2)
    assert same(train, twin)
    train.step(batch, loss, lr=1e-2)
    twin.step(batch, loss, lr=1e-2)
    assert same(train, twin)


def test_a_gradient_that_is_not_finite_leaves_no_trace():
    train, twin, batch = engine(), engine(), batch_of([6, 8])
    with pytest.raises(FloatingPointError, match="gradient norm"):
        train.step(batch, lambda b, lp: LossOutput(torch.sqrt(lp.clamp_max(0.0).mul(0.0)).sum()), lr=1e-2)
    assert same(train, twin)


def test_a_failure_in_a_late_microbatch_forgets_the_early_gradients():
    train, twin = engine(microbatch_tokens=8), engine(microbatch_tokens=8)
    batch = batch_of([6, 8])

    def late(part, logprobs_BT):
        output = loss(part, logprobs_BT)
        return LossOutput(output.loss * (float("nan") if 1 in part.trajectory_index_B else 1.0))

    with pytest.raises(FloatingPointError):
        train.step(batch, late, lr=1e-2)
    train.step(batch, loss, lr=1e-2)
    twin.step(batch, loss, lr=1e-2)
    assert same(train, twin)


@pytest.mark.parametrize("rows", [[], [6, 8]])
def test_a_batch_that_trains_nothing_changes_nothing(rows):
    batch = batch_of([6, 8])
    if rows:
        batch = replace(batch, loss_mask_BT=torch.zeros_like(batch.loss_mask_BT))
    else:
        empty = {
            f.name: getattr(batch, f.name)[:0]
            for f in fields(batch)
            if f.name.endswith(("_BT", "_B")) and getattr(batch, f.name) is not None
        }
        batch = replace(batch, **empty)
    train, twin = engine(), engine()
    train.step(batch_of([5]), loss, lr=1e-2)
    twin.step(batch_of([5]), loss, lr=1e-2)
    metrics = train.step(batch, loss, lr=1e-2)
    assert (metrics["loss"], metrics["grad_norm"]) == (0.0, 0.0)
    assert same(train, twin)
    assert not train.logprobs(batch).any()


def test_training_the_first_token_of_a_segment_is_refused():
    batch = batch_of([4], trained=4)
    with pytest.raises(InvalidArgument, match="first token"):
        engine().step(batch, loss, lr=1e-2)


def test_weight_decay_shrinks_matrices_and_spares_vectors():
    train, plain = engine(weight_decay=0.5), engine()
    batch = batch_of([6, 8])
    train.step(batch, loss, lr=1e-2)
    plain.step(batch, loss, lr=1e-2)
    assert train.net.line[20].norm() < plain.net.line[20].norm()  # never read, so decay alone moves it
    assert torch.equal(train.net.norm, plain.net.norm)


def test_loading_continues_bit_for_bit(tmp_path):
    train, batch = engine(), batch_of([6, 8, 10])
    for _ in range(3):
        train.step(batch, loss, lr=1e-2)
    train.save(tmp_path)
    again = engine(seed=9)
    again.step(batch, loss, lr=1e-2)
    again.load(tmp_path)
    assert same(train, again)
    for _ in range(3):
        assert again.step(batch, loss, lr=1e-2) == train.step(batch, loss, lr=1e-2)
    assert same(train, again)


def test_loading_the_state_before_the_first_step_forgets_later_ones(tmp_path):
    train, twin, batch = engine(), engine(), batch_of([6, 8])
    train.save(tmp_path)
    train.step(batch, loss, lr=1e-2)
    train.load(tmp_path)
    train.step(batch, loss, lr=1e-2)
    twin.step(batch, loss, lr=1e-2)
    assert same(train, twin)


def test_saving_leaves_one_file_and_replaces_the_old_one(tmp_path):
    train = engine()
    train.save(tmp_path)
    train.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_a_damaged_or_missing_state_is_one_clear_error(tmp_path):
    with pytest.raises(InvalidArgument, match=r"Remove the folder .* to resume from the checkpoint before"):
        engine().load(tmp_path)
    train = engine()
    train.save(tmp_path)
    whole = (tmp_path / STATE_FILE).read_bytes()
    (tmp_path / STATE_FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidArgument, match=r"Remove the folder .* to resume from the checkpoint before"):
        train.load(tmp_path)


def test_another_models_state_is_refused(tmp_path):
    engine().save(tmp_path)
    other = TorchTrain(TinyModel(replace(SHAPE, layers=1)), OptimOptions(), export=lambda folder: None)
    with pytest.raises(InvalidArgument, match="another model"):
        other.load(tmp_path)


def test_a_full_disk_is_the_systems_error_and_leaves_the_file_before(tmp_path):
    """The safetensors library has an error class of its own, which nobody above would take for a full disk."""
    train = engine()
    train.save(tmp_path)
    before = (tmp_path / STATE_FILE).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(OSError, match=STATE_FILE) as refused:
            train.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.errno == errno.EFBIG
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]
    assert (tmp_path / STATE_FILE).read_bytes() == before
