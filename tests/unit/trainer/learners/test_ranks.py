"""FSDP2 over two ranks on the processor: an odd batch, a rank with nothing, and the weights of one process."""

import json

import numpy as np
import pytest
import torch
import torch.multiprocessing
from learner_cases import learner, rows_of
from rank_cases import alone, model, run

from trainer.learners.torch_train import STATE_FILE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(run, args=(2, str(path)), nprocs=2)
    return path


@pytest.fixture(scope="module")
def said(folder):
    return [json.loads((folder / f"said{rank}.json").read_text()) for rank in (0, 1)]


def test_two_ranks_move_the_weights_as_one_process_does(folder, said):
    expected, history, _ = alone()
    assert said[0]["norms"] == said[1]["norms"]
    assert said[0]["norms"] == pytest.approx([step["grad_norm"] for step in history], rel=1e-5)
    for rank in (0, 1):
        with np.load(folder / f"weights{rank}.npz") as found:
            assert set(found) == expected.keys()
            assert max(np.abs(found[name] - expected[name]).max() for name in expected) < 1e-5


def test_one_rank_had_nothing_and_the_losses_add_up_nevertheless(said):
    _, history, _ = alone()
    assert said[1]["losses"][1] == []
    for step, expected in enumerate(history):
        total = sum(said[0]["losses"][step]) + sum(said[1]["losses"][step])
        assert total == pytest.approx(expected["loss"], rel=1e-5)


def test_each_rank_holds_half_of_the_weights(said):
    whole = sum(value.numel() for value in model().parameters())
    assert said[0]["held"] + said[1]["held"] == whole
    assert said[0]["held"] == pytest.approx(whole / 2, rel=0.1)


def test_ranks_refuse_an_update_together_and_nothing_moves_without_a_gradient(said):
    assert "the loss is nan" in said[0]["refused"]
    assert "another rank's" in said[1]["refused"]
    assert said[0]["nothing"] == said[1]["nothing"] == 0.0
    assert said[0]["unmoved"]


def test_a_checkpoint_of_two_ranks_resumes_on_two_and_in_one_process(folder, said):
    assert said[0]["resumed"]
    assert (folder / "saved" / STATE_FILE).is_file()
    single = learner(model())
    single.add_critic(lr=1e-3, seed=0)
    single.load(folder / "saved")
    with np.load(folder / "weights0.npz") as found:
        assert all(np.array_equal(found[name], value) for name, value in single.weights().items())
    batch = rows_of([9, 14])
    torch.testing.assert_close(torch.tensor(said[1]["asked"]), single.logprobs(batch), atol=1e-5, rtol=1e-5)
