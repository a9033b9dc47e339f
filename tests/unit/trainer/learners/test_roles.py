"""What `ale train --dry-run` says of memory: by role, from a model's config alone, and nothing where nothing is known."""

from __future__ import annotations

import tomllib

import pytest
import torch
import transformers
from random_llama import random_llama

from ale.training.training import TrainCommand, train_command
from rock_env.errors import UnknownName
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.learners.memory import Shape
from trainer.models import roles
from trainer.models.chosen import memory_of
from trainer.models.hf import HFOptions
from trainer.protocols.memory import Part, Role

QWEN3 = transformers.Qwen3Config(
    vocab_size=151_936,
    hidden_size=1_024,
    intermediate_size=3_072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40_960,
    tie_word_embeddings=True,
)
"""Qwen3-0.6B."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model's config, and nothing else of it."""
    path = tmp_path_factory.mktemp("qwen3")
    QWEN3.save_pretrained(path)
    return str(path)


def found(folder: str, algo: str = "grpo", **options: object) -> dict[str, Role]:
    given = HFOptions.model_validate({"device": "cpu", "dtype": "bfloat16", **options})
    chosen = {"kl_weight": 0.1, "kl_reference": "frozen"} if algo == "reinforce" else {}
    config = TrainConfig(model=folder, algo=algo, algo_options=chosen)
    config = config.model_copy(
        update={"engine_options": given.model_dump(exclude_none=True), "learner": "hf"}
    )
    return {role.name: role for role in memory_of(config)}


def test_every_role_is_there_with_its_weights(folder):
    parameters = Shape.of(QWEN3).parameters
    all_weights, lora = found(folder), found(folder, lora_rank=16)
    assert list(all_weights) == ["learner", "sampler", "store"]
    assert all_weights["learner"].parts["weights"] == 4 * parameters
    assert all_weights["sampler"].parts["weights"] == 2 * parameters
    assert all_weights["store"].total == 2 * 4 * parameters
    assert lora["learner"].parts["moments"] < all_weights["learner"].parts["moments"] / 50
    assert lora["sampler"] == all_weights["sampler"]
    assert found(folder, ranks=4)["learner"].processes == 4
    assert found(folder, "reinforce")["reference"].total == 4 * parameters
    assert found(folder, "reinforce", lora_rank=16)["reference"].total == 2 * parameters


def test_ranks_have_a_share_of_what_their_parallelism_divides(folder):
    parameters = Shape.of(QWEN3).parameters
    parts = {
        name: found(folder, ranks=2, parallelism=name)["learner"].parts
        for name in ("torch", "fsdp2", "zero1", "zero2", "zero3")
    }
    weights = {name: each["weights"] / parameters for name, each in parts.items()}
    assert weights == {"torch": 4, "fsdp2": 2, "zero1": 4, "zero2": 4, "zero3": 2}
    gradients = {name: each["gradients"] / parameters for name, each in parts.items()}
    assert gradients == {"torch": 4, "fsdp2": 2, "zero1": 4, "zero2": 2, "zero3": 2}
    moments = {name: each["moments"] / parameters for name, each in parts.items()}
    assert moments == {"torch": 8, "fsdp2": 4, "zero1": 6, "zero2": 6, "zero3": 6}
    offloaded = found(folder, ranks=2, parallelism="fsdp2", offload=True)
    assert offloaded["learner"].parts["moments"] == 0
    assert offloaded["offloaded"].total == 4 * parameters


def test_the_learner_says_for_which_pass_it_is_counted(folder):
    def learner(part: Part | None = None, **settings: object) -> Role:
        options = {"device": "cpu", "max_context": 1_000}
        given = {"model": folder, "algo": "grpo", "engine_options": options, **settings}
        return memory_of(TrainConfig.model_validate(given), part)[0]

    few = {"rollout": {"groups_per_step": 1, "group_size": 2}, "warmup": {"trajectories": 3}}
    assert learner().part == Part(16_384, 16_384)
    assert learner(**few, agent={"max_turns": 2}).part == Part(6_000, 6_000)
    assert learner(**few, agent={"max_turns": 100}).part == Part(16_384, 16_384)
    recorded = {**few, "warmup": {"data": ["somewhere"]}}
    assert learner(**recorded, agent={"max_turns": 2}).part == Part(16_384, 16_384)
    had = learner(Part(900, 200))
    assert had.part == Part(900, 200)
    assert had.total < learner(Part(900, 900)).total < learner().total
    assert "the learner: with a pass of 900 tokens, of which 200 train" in roles.role_lines([had])


def test_the_samplers_memory_is_bounded_by_what_bounds_it(folder):
    token_bytes = 28 * 2 * 8 * 128 * 2
    few = found(folder, max_rows=2, max_context=1_000, remembered_bytes=0)["sampler"]
    assert few.parts["cache"] == 2 * 1_000 * token_bytes
    assert few.parts["remembered"] == 0
    many = found(folder, max_rows=64, cache_bytes=10**9, remembered_bytes=10**8)["sampler"]
    assert (many.parts["cache"], many.parts["remembered"]) == (10**9, 10**8)
    assert many.total == sum(many.parts.values())


def test_the_adapters_are_as_many_as_peft_makes(folder):
    peft = pytest.importorskip("peft", reason="needs peft: pip install 'ale-rl[lora]'")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(QWEN3)
        wrapped = peft.get_peft_model(model, peft.LoraConfig(r=16, target_modules="all-linear"))
    trained = sum(value.numel() for value in wrapped.parameters() if value.requires_grad)
    assert roles.adapter_parameters(Shape.of(QWEN3), 16) == trained


def said(capsys: pytest.CaptureFixture[str], model: str, *overrides: str) -> str:
    command = TrainCommand(
        named={"env": "frozen_lake", "model": model},
        overrides=overrides,
        file=None,
        run=None,
        resume=False,
        ray_address=None,
        quiet=True,
        dry_run=True,
    )
    assert train_command(command) == 0
    out = capsys.readouterr().out
    assert tomllib.loads(out)["model"] == model
    return out


def test_a_dry_run_prints_the_map_as_comments(folder, capsys, tmp_path):
    out = said(capsys, folder, "engine_options.device=cpu", "rollout.engines=3")
    table = out.partition("# memory")[2].splitlines()
    assert [line.split()[1:4] for line in table[2:4]] == [["learner", "1", "cpu"], ["sampler", "3", "cpu"]]
    assert " 4.77 GB  weights 4.77" in next(line for line in table if "store" in line)
    assert any(line.startswith("# all on one cpu: ") for line in table)
    assert "memory" not in said(capsys, "tiny").rpartition("\n\n")[2]
    begun = said(capsys, random_llama(tmp_path / "llama"), "engine_options.adapter=nowhere")
    assert "# memory: not known. cannot read the rank of the adapter nowhere/adapter_config.json" in begun


def test_a_dry_run_refuses_a_misspelt_model(capsys):
    with pytest.raises(UnknownName, match=r"unknown model 'smolm2'\. Did you mean 'smollm2'\?"):
        said(capsys, "smolm2")


def test_a_dry_run_prints_who_is_where_and_refuses_what_does_not_fit(folder, capsys):
    pool = "[{cpus=3, memory_gb=100}, {cpus=2}]"
    chosen = [f"placement.pool={pool}", "engine_options.device=cpu", "rollout.workers=2"]
    out = said(capsys, folder, *chosen, "placement.layout=colocated")
    table = out.partition("# placement, colocated")[2].splitlines()
    assert table[1].split() == ["#", "bundle", "cpus", "gpus", "memory", "expected", "holds"]
    assert table[2].endswith("learner, sampler 1, sampler 2")
    assert table[3].endswith("environments 1, environments 2")
    with pytest.raises(
        ConfigError, match=r"bundle 0 of placement\.pool has 9 GB, and .* learner, sampler 1, sampler 2"
    ):
        said(capsys, folder, f"placement.pool={pool.replace('100', '9')}", *chosen[1:])


def test_vllm_is_counted_beside_the_learner(folder):
    config = TrainConfig(model=folder, algo="grpo", sampler="vllm", engine_options={"device": "cpu"})
    roles_of = {role.name: role for role in memory_of(config)}
    assert list(roles_of) == ["learner", "sampler", "store"]
    parts = roles_of["sampler"].parts
    assert (parts["cache"], parts["remembered"]) == (4 * 2**30, 0)
    assert roles_of["store"].total == 2 * parts["weights"]


def test_a_model_that_is_not_here_is_not_asked_for(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownName, match=r"holds no model: got no config\.json in it"):
        said(capsys, str(tmp_path / "empty"))
    assert "# memory: not known. cannot load model" in said(capsys, "somebody/not-here")
