"""The tiny engine's folder format and its defaults."""

import numpy as np
import pytest

from agent_runtime.chat import ChatMessage
from rock_env.errors import InvalidArgument
from trainer.models.tiny.engine import ENGINE, TinyOptions
from trainer.models.tiny.tokenizer import ASSISTANT, END, USER, TinyTokenizer
from trainer.protocols.engines import OptimOptions


@pytest.fixture
def folder(tmp_path):
    ENGINE.train("tiny", TinyOptions(layers=1, width=8, heads=2, max_context=20), 3, OptimOptions()).export(
        tmp_path
    )
    return tmp_path


def test_the_default_model_is_small():
    net = ENGINE.train("tiny", TinyOptions(), 0, OptimOptions()).net
    assert sum(value.numel() for value in net.parameters()) < 300_000


def test_a_folder_brings_its_own_shape_and_weights(folder):
    again = ENGINE.train(str(folder), TinyOptions(), 8, OptimOptions())
    assert (again.net.shape.layers, again.net.shape.width, again.net.max_context) == (1, 8, 20)
    assert ENGINE.template(str(folder), TinyOptions()).max_context == 20
    fresh = ENGINE.train("tiny", TinyOptions(layers=1, width=8, heads=2, max_context=20), 3, OptimOptions())
    assert (again.net.embedding == fresh.net.embedding).all()


@pytest.mark.parametrize("name", ["ale_tiny.json", "ale_tiny_tokenizer.json", "model.safetensors"])
def test_a_damaged_folder_is_one_clear_error(folder, name):
    (folder / name).write_bytes((folder / name).read_bytes()[:-4])
    with pytest.raises(
        InvalidArgument, match=name if name != "ale_tiny.json" else "cannot read the tiny model"
    ):
        ENGINE.train(str(folder), TinyOptions(), 0, OptimOptions())


def test_another_format_is_refused(folder):
    path = folder / "ale_tiny.json"
    path.write_text(path.read_text().replace("ale-tiny-1", "ale-tiny-9"))
    with pytest.raises(InvalidArgument, match="ale-tiny-9"):
        ENGINE.template(str(folder), TinyOptions())


def test_cli_agents_are_read_and_answered_in_the_models_own_tokens(folder):
    template = ENGINE.tools(str(folder), TinyOptions())
    assert template.max_context == 20
    prompt = template.open((ChatMessage("user", "up"),), ())
    assert prompt.tolist() == [USER, *TinyTokenizer().encode("up").tolist(), ASSISTANT]
    assert template.parse(np.append(TinyTokenizer().encode("Left √"), END), ()).text == "Left √"
