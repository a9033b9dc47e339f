"""`ale advise`: what it chooses, that `ale train` accepts its command with the same numbers, and its speeds' sources."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ale.cli import app, explained
from ale.training import advising
from ale.training.advising import Choice, Model, Owned, advised, shown, speed_lines

ROOT = Path(__file__).parents[3]
SMALL, FOUR, EIGHT, EXPERTS = (f"Qwen/Qwen3-{size}" for size in ("0.6B", "4B", "8B", "30B-A3B"))
TABLES = tomllib.loads((resources.files("ale.training") / "measured.toml").read_text(encoding="utf-8"))


def told(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None:
        raise done.exception
    return done.stdout


def refused(*words: str) -> str:
    with pytest.raises(Exception, match=r"\S") as error:
        told("advise", *words)
    said, code = explained(error.value)
    assert code == 2
    return said


def best(name: str, gb: int, gpus: int = 1) -> Choice:
    _, found = advised(Model.of(name), Owned(gb, gpus), "frozen_lake")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "gb", "gpus", "trains", "context", "sampler"),
    [
        (SMALL, 24, 1, "all weights", 32_768, ""),
        (SMALL, 12, 1, "LoRA of rank 16", 32_768, ""),
        (FOUR, 24, 1, "LoRA of rank 16", 8_192, ""),
        (FOUR, 80, 1, "all weights", 16_384, "vllm"),
        (EIGHT, 80, 1, "LoRA of rank 16", 32_768, ""),
        (EIGHT, 24, 2, "LoRA of rank 16", 4_096, ""),
    ],
)
def test_it_chooses_the_first_that_fits(
    name: str, gb: int, gpus: int, trains: str, context: int, sampler: str
) -> None:
    choice = best(name, gb, gpus)
    assert (choice.trains, choice.option["max_context"], choice.config.sampler) == (trains, context, sampler)
    assert choice.fit.needed <= gb * 1e9


def test_lora_comes_only_after_all_weights_in_every_context() -> None:
    tried, choice = advised(Model.of(FOUR), Owned(24, 1), "frozen_lake")
    assert choice is tried[-1]
    assert [each.fits for each in tried[:-1]] == ["no"] * (len(tried) - 1)
    every = [(each.trains, each.config.sampler, each.option["max_context"]) for each in tried]
    contexts = [32_768, 16_384, 8_192, 4_096]
    assert every[:8] == [("all weights", sampler, size) for sampler in ("", "vllm") for size in contexts]
    assert every[8:] == [("LoRA of rank 16", "", size) for size in contexts[:3]]


@pytest.mark.parametrize(
    ("name", "gb", "gpus", "file"),
    [
        (FOUR, 80, 1, "qwen3-4b.toml"),
        (EIGHT, 80, 8, "qwen3-8b.toml"),
        (EXPERTS, 80, 8, "qwen3-30b-a3b.toml"),
        (FOUR, 79, 1, None),
        (EIGHT, 80, 4, None),
        (FOUR, 96, 1, "qwen3-4b.toml"),
    ],
)
def test_a_recipe_is_named_where_its_gpus_are_there(name: str, gb: int, gpus: int, file: str | None) -> None:
    words = best(name, gb, gpus).words
    assert ("--config" in words) == bool(file)
    assert file is None or Path(words[-1]).name == file


@pytest.mark.parametrize(
    ("name", "gb", "gpus"),
    [
        (SMALL, 12, 1),
        (SMALL, 24, 1),
        (FOUR, 24, 1),
        (FOUR, 79, 1),
        (FOUR, 80, 1),
        (EIGHT, 24, 2),
        (EIGHT, 80, 8),
    ],
)
def test_ale_train_accepts_the_command_with_the_same_numbers(name: str, gb: int, gpus: int) -> None:
    out = told("advise", "--model", name, "--gpu", str(gb), "--gpus", str(gpus), "--env", "math")
    (command,) = re.findall(r"^  ale (train (?:.*\\\n)*.*)$", out, re.MULTILINE)
    dry = (
        told(*shlex.split(command.replace("\\\n", "")), "--dry-run")
        .replace("# ", "")
        .replace("\n#\n", "\n\n")
    )
    (memory,) = re.findall(r"^memory, worked out.*?(?=\n\ntokens/s)", out, re.MULTILINE | re.DOTALL)
    assert "learner" in memory
    assert "placement, " in memory
    assert memory in dry


def test_a_processor_is_compared_with_its_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "available_bytes", lambda: 64_500_000_000)
    out = told("advise", "--model", SMALL, "--gpu", "0")
    assert "on a processor with 64 GB free" in out
    assert "engine_options.device=cpu" in out
    assert "engine_options.lora_rank=0" in out
    assert "all on one cpu:" in out
    assert out.count("nothing measured applies, because only GPUs were measured") == 2
    monkeypatch.setattr(advising, "available_bytes", lambda: 4_000_000_000)
    assert "GB of this machine, which has 4 GB" in refused("--model", SMALL, "--gpu", "0")


def test_what_does_not_fit_says_by_how_much_and_what_would() -> None:
    said = refused("--model", EIGHT, "--gpu", "24")
    number = re.search(r"expected to take ([\d.]+) GB of a GPU, which has 24 GB: ([\d.]+) GB too much", said)
    assert number is not None
    assert float(number[1]) - 24 == pytest.approx(float(number[2]), abs=0.06)
    assert "LoRA would fit 2 GPUs of 24 GB or one GPU of 48 GB" in said
    assert best(EIGHT, 24, 2).fits == best(EIGHT, 48).fits == "yes"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--model", "qwen3-4b", "--gpu", "24"),
            "unknown model 'qwen3-4b'. Did you mean 'Qwen/Qwen3-4B'? Known: Qwen/",
        ),
        (
            ("--model", "Qwen/Qwen3-5B", "--gpu", "24"),
            "unknown model 'Qwen/Qwen3-5B'. Did you mean 'Qwen/Qwen3-",
        ),
        (("--model", "tiny", "--gpu", "24"), "the model 'tiny' needs no advice"),
        (("--model", str(ROOT / "docs"), "--gpu", "24"), "holds no model: got no config.json"),
        (("--model", SMALL, "--gpu", "24", "--env", "frozen_lak"), "Did you mean 'frozen_lake'?"),
        (("--model", SMALL, "--gpu", "0", "--gpus", "2"), "--gpus 2 counts GPUs: got --gpu 0"),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], said: str) -> None:
    assert said in refused(*words)


def test_a_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    Model.of(SMALL).about.save_pretrained(tmp_path)
    assert Model.of(str(tmp_path)).shape == Model.of(SMALL).shape
    assert best(str(tmp_path), 24).words[-1] == str(tmp_path)


def test_the_same_shape_is_measured_and_another_extrapolated() -> None:
    _, learner, sampler = speed_lines(Model.of(SMALL), best(SMALL, 24))
    assert learner.startswith(
        "learner: 20,716, measured at 26,000 tokens a pass, the nearest to 32,768 (docs/results/gpu-learner.md, commit"
    )
    assert sampler.startswith("sampler: 5,223, measured at 32 rows (docs/results/gpu.md, commit ")
    _, learner, sampler = speed_lines(Model.of(FOUR), best(FOUR, 24))
    share = Model.of(SMALL).shape.parameters / Model.of(FOUR).shape.parameters
    assert learner.startswith(
        f"learner: about {19_445 * share:,.0f}, extrapolated from 19,445 of {SMALL} at 8,192 tokens"
    )
    assert f"about {5_223 * share:,.0f}, extrapolated from 5,223 of {SMALL} at 32 rows" in sampler


@pytest.mark.parametrize(
    ("name", "gb", "gpus", "learner", "sampler"),
    [
        (EIGHT, 80, 8, "one rank was measured", "vLLM was not measured"),
        (EXPERTS, 80, 8, "no model with experts", "no model with experts"),
    ],
)
def test_what_was_not_measured_is_not_invented(
    name: str, gb: int, gpus: int, learner: str, sampler: str
) -> None:
    lines = speed_lines(Model.of(name), best(name, gb, gpus))
    assert f"learner: nothing measured applies, because {learner}" in lines[1]
    assert f"sampler: nothing measured applies, because {sampler}" in lines[2]


def test_the_measured_figures_are_those_of_their_pages() -> None:
    for table in TABLES.values():
        page = (ROOT / table["page"]).read_text(encoding="utf-8")
        assert f"at commit {table['commit']}, one {table['device']} " in page
        assert f"The model has {table['model'].partition('/')[2]}'s shape" in page
    pages = {role: (ROOT / table["page"]).read_text(encoding="utf-8") for role, table in TABLES.items()}
    for trains in ("all weights", "LoRA of rank 16"):
        rows = re.findall(rf"^\| {trains} \| ([\d,]+) \|.*\| ([\d,]+) \|$", pages["learner"], re.MULTILINE)
        assert TABLES["learner"][trains] == {
            size.replace(",", ""): int(speed.replace(",", "")) for size, speed in rows
        }
    rows = re.findall(r"^\| (\d+) rows? \| ([\d,]+) \|", pages["sampler"], re.MULTILINE)
    assert TABLES["sampler"]["all"] == {size: int(speed.replace(",", "")) for size, speed in rows}


def test_the_command_names_a_section_a_line() -> None:
    first, *sections = shown(best(FOUR, 24)).split(" \\\n")
    assert first == f"  ale train --env frozen_lake --algo grpo --model {FOUR}"
    assert [line.split()[1].partition(".")[0].strip("'") for line in sections] == [
        "engine_options",
        "optim",
        "rollout",
        "placement",
    ]
