"""What a run chooses for `checkpointing` by the memory that there is, of planted numbers; and the choice stays as made."""

from __future__ import annotations

import pytest
import transformers

from ale.config import resolve
from ale.training import runs
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.models.chosen import memory_of
from trainer.models.fitting import available_bytes, settled
from trainer.models.roles import together

GB = 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The config of a model of SmolLM2-135M's shape, and nothing else of it."""
    path = tmp_path_factory.mktemp("smol")
    transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        max_position_embeddings=8_192,
    ).save_pretrained(path)
    return str(path)


def config_of(folder: str, *, pool: object = (), gpu: bool = False, **options: object) -> TrainConfig:
    placement = {"pool": pool} if pool else {}
    given = {"device": "cuda" if gpu else "cpu", **options}
    if gpu:  # what a placement says is believed; nothing is asked of this machine
        given.pop("device")
    chosen = {"model": folder, "algo": "grpo", "engine_options": given, "placement": placement}
    return TrainConfig.model_validate(chosen)


def needs(config: TrainConfig, *, checkpointing: bool) -> int:
    options = {**config.engine_options, "checkpointing": checkpointing}
    return together(memory_of(config.model_copy(update={"engine_options": options})), "cpu")


def choice(config: TrainConfig, **asked: object) -> tuple[object, str]:
    found, why = settled(config, **asked)
    return found.engine_options.get("checkpointing"), why


def test_it_is_on_only_where_a_run_fits_by_it(folder):
    config = config_of(folder)
    without, with_it = (needs(config, checkpointing=each) for each in (False, True))
    assert 1.2 * with_it < without
    rooms = {
        "much": 2 * without,
        "close": round(1.1 * without),
        "some": round(1.2 * with_it),
        "none": with_it // 2,
    }
    found = {name: choice(config, machine=lambda room=room: room) for name, room in rooms.items()}
    assert {name: chosen for name, (chosen, _) in found.items()} == {
        "much": False,
        "close": True,  # an estimate may be 15 % too low
        "some": True,
        "none": True,
    }
    told = {name: why for name, (_, why) in found.items()}
    assert told["much"] == (
        f"engine_options.checkpointing=false was chosen, because {without / GB:.2f} GB are expected to be taken of the "
        f"{2 * without / GB:.2f} GB of this machine's free memory without it"
    )
    assert told["some"].endswith(f"without it, {with_it / GB:.2f} GB with it")
    assert told["none"].endswith("lower optim.microbatch_tokens if memory runs out")


@pytest.mark.parametrize("given", [True, False])
def test_what_a_user_sets_stays(folder, given):
    config = config_of(folder, checkpointing=given)
    assert settled(config, machine=lambda: 1) == (config, "")
    assert settled(config, machine=lambda: 10**15) == (config, "")


def test_an_engine_without_the_option_has_nothing_to_choose():
    config = TrainConfig(model="tiny")
    assert settled(config, machine=lambda: 1) == (config, "")


def test_a_bundles_memory_counts_in_place_of_the_machines(folder):
    for memory_gb, expected in ((10_000, False), (1, True)):
        chosen, why = choice(
            config_of(folder, pool=[{"cpus": 5, "memory_gb": memory_gb}]), machine=lambda: 1 * GB
        )
        assert chosen is expected
        assert f"of the {memory_gb:.2f} GB of bundle 0 of placement.pool" in why


def test_a_gpu_counts_where_the_learner_has_one(folder):
    config = config_of(folder, pool=[{"cpus": 5, "gpus": 1}], gpu=True)
    for room, expected in ((10**13, False), (10**9, True)):
        chosen, why = choice(config, machine=lambda: 1, device=lambda room=room: (1, room))
        assert chosen is expected
        assert "of the GPU" in why
    chosen, why = choice(config, device=lambda: None)  # it is another machine's
    assert chosen is False
    assert "is not known here" in why


def test_nothing_is_known_of_other_machines_unless_the_placement_says(folder):
    chosen, why = choice(config_of(folder), elsewhere=True, machine=lambda: 1)
    assert chosen is False
    assert "is not known here" in why
    assert choice(config_of(folder), machine=lambda: None)[0] is False
    placed = config_of(folder, pool=[{"cpus": 5, "memory_gb": 1}])
    assert choice(placed, elsewhere=True)[0] is True


def test_a_containers_limit_counts(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (groups / "memory").mkdir(parents=True)
    proc.mkdir()
    assert available_bytes(proc, groups) is None
    (proc / "meminfo").write_text("MemTotal: 4000 kB\nMemAvailable:   3000 kB\n")
    assert available_bytes(proc, groups) == 3_000 * 1024
    (groups / "memory.max").write_text("max\n")
    (groups / "memory.current").write_text("1000\n")
    (groups / "memory.stat").write_text("anon 900\ninactive_file 100\n")
    assert available_bytes(proc, groups) == 3_000 * 1024
    (groups / "memory.max").write_text("5000\n")
    assert available_bytes(proc, groups) == 5_000 - 1_000 + 100
    for name, value in (("limit_in_bytes", "4000"), ("usage_in_bytes", "4500")):
        (groups / "memory" / f"memory.{name}").write_text(value)
    (groups / "memory" / "memory.stat").write_text("total_inactive_file 0\n")
    assert available_bytes(proc, groups) == 0


def test_a_resumed_run_keeps_what_it_chose_when_it_began(folder, tmp_path):
    asked, other = (
        resolve(options={"model": folder}, overrides=["engine_options.device=cpu", *more]).config
        for more in ([], ["engine_options.checkpointing=false"])
    )
    assert asked.engine_options["checkpointing"] == "auto"
    begun, _ = settled(asked, machine=lambda: 1)
    runs.open_new(tmp_path / "run", begun)
    assert "checkpointing = true" in (tmp_path / "run" / runs.CONFIG).read_text()
    assert runs.continue_run(tmp_path / "run", asked) == begun
    with pytest.raises(ConfigError, match=r"has engine_options\.checkpointing = True, got False"):
        runs.continue_run(tmp_path / "run", other)
