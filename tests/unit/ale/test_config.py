"""Layers, names and the round trip of a run's config, with real plugins."""

import tomllib
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ale import config, option_names, toml_text
from rock_env.errors import UnknownName
from rock_env.grading.model import Build, Task, Verifier
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration
from trainer.config import TrainConfig
from trainer.errors import ConfigError


def test_there_are_not_more_options_than_a_person_reads() -> None:
    assert len(list(option_names.option_names())) <= 126  # with those of thoughts


def test_every_section_is_documented() -> None:
    documented = option_names.comments()
    assert all(
        documented.get(name)
        for name, field in TrainConfig.model_fields.items()
        if not field.is_required() and name != "train_split"
    )


def test_the_resolved_config_reruns_the_run(tmp_path: Path) -> None:
    overrides = ["optim.lr=3e-4", "env_args.slippery=true", "anchors.scheduler=parallel"]
    first = config.resolve(options={"env": "frozen_lake", "algo": "ipa", "seed": 7}, overrides=overrides)
    file = tmp_path / "config.toml"
    file.write_text(config.render(first.config), encoding="utf-8")
    assert config.resolve(file=file).config == first.config
    assert first.config.optim.lr == 3e-4
    assert first.config.env_args["slippery"] is True
    assert first.config.algo_options, "the algorithm's defaults belong to the record"


def test_stronger_layers_win(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 1\nsteps = 5\n[optim]\nlr = 0.5\nbeta1 = 0.8\n", encoding="utf-8")
    made = config.resolve(file=file, options={"seed": 2}, overrides=["optim.lr=0.25"]).config
    assert (made.seed, made.steps, made.optim.lr, made.optim.beta1) == (2, 5, 0.25, 0.8)


def test_options_of_another_algorithm_are_left_out_and_said_so(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('algo = "ipa"\n[algo_options]\ngamma = 0.5\n', encoding="utf-8")
    made = config.resolve(file=file, options={"algo": "reinforce"})
    assert made.config.algo_options.get("gamma") != 0.5
    assert "algo_options" in made.notices[0]
    assert config.resolve(file=file).config.algo_options["gamma"] == 0.5


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optim.lrr=1", "Did you mean 'optim.lr'"),
        (
            "trainer.optim.lr=1",
            "unknown option 'trainer.optim.lr' in the command line. Did you mean 'optim.lr'",
        ),
        ("learning_rate=1", "Did you mean 'optim.lr'?"),
        ("optim.learning-rate=1", "Did you mean 'optim.lr'?"),
        ("batch_size=1", "Did you mean 'rollout.groups_per_step'?"),
        ("n_rollouts=1", "Did you mean 'rollout.group_size'?"),
        ("rollout.temperature=1", "Did you mean 'sampling.temperature'?"),
        ("evall.temperature=1", "Did you mean 'eval.temperature'?"),
        ("save_every=1", "Did you mean 'checkpoint.every'?"),
        ("gpus=1", "Did you mean 'placement.pool'?"),
        ("optim.learning_rate=1", "Did you mean 'optim.lr'?"),
        ("optim=1", "is a section"),
        ("seed.x=1", "is one option"),
        ("optim.lr", "NAME=VALUE"),
        ("optim..lr=1", "NAME=VALUE"),
        ("optim.lr=-1", "bad value for 'optim.lr' in the command line"),
        ("optim.lr=fast", "bad value for 'optim.lr' in the command line"),
        ("env_args.size=[1]", "bad value for 'env_args.size' in the command line"),
        ("anchors.scheduler=diagonal", "bad value for 'anchors.scheduler'"),
    ],
)
def test_a_bad_override_is_refused_with_the_remedy(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.resolve(overrides=[override])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_option_is_called_elsewhere_leads_to_one_that_there_is() -> None:
    elsewhere = option_names._ELSEWHERE
    assert elsewhere.keys() <= set(option_names.option_names())
    names = [name for each in elsewhere.values() for name in each.split()]
    assert len(names) == len(set(names))
    assert not set(names) & set(option_names.option_names())


def test_settings_that_do_not_go_together_are_named_and_no_others() -> None:
    with pytest.raises(ConfigError) as caught:
        config.resolve(overrides=["rollout.mode=pipeline", "rollout.staleness=0"])
    assert str(caught.value).startswith("bad settings")
    assert "groups_per_step" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("env=frozen_lak", "Did you mean 'frozen_lake'"),
        ("algo=ipaa", "Did you mean 'ipa'"),
        ("env_args.slipery=true", "Did you mean 'slippery'"),
        ("algo_options.gama=0.9", "Did you mean 'gamma'"),
        ("eval.split=heldout", "Did you mean 'held_out'"),
    ],
)
def test_an_unknown_name_names_the_nearest(override: str, said: str) -> None:
    with pytest.raises(UnknownName) as caught:
        config.resolve(overrides=[override])
    assert said in str(caught.value)


def test_a_malformed_file_says_where(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 1\n[optim\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2, column"):
        config.resolve(file=file)
    with pytest.raises(ConfigError, match="cannot read"):
        config.resolve(file=tmp_path / "absent.toml")


RECIPES = sorted(
    path.name for path in (resources.files("ale") / "recipes").iterdir() if path.name.endswith(".toml")
)


@pytest.mark.parametrize("env", RECIPES)
def test_every_recipe_loads_in_all_its_variants(env: str) -> None:
    recipe = tomllib.loads((resources.files("ale") / "recipes" / env).read_text(encoding="utf-8"))
    name = env.removesuffix(".toml")
    config.resolve(options={"env": name})
    for variant in recipe.get("variant", []):
        match = {**variant["match"]}
        match.pop("engine", None)
        config.resolve(
            options={"env": name}, overrides=[f"{key}={_toml(value)}" for key, value in match.items()]
        )


def test_an_environment_made_of_tasks_has_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path))
    task = Task("one", "Do it.", Build(image="busybox"), Verifier(("true",), "exit_code"))
    record = Registration(
        name="mine", digest="d" * 64, source="/x", registered_at=0.0, tasks=1, images=("busybox",)
    )
    registered.store(record, [task])
    made = config.resolve(options={"env": "mine"}).config
    assert (made.rollout.group_size, made.rollout.workers, made.rollout.batching) == (2, 1, "eager")
    assert made.env_args["max_output_chars"] == 1000
    assert (
        config.resolve(options={"env": "mine"}, overrides=["rollout.workers=2"]).config.rollout.workers == 2
    )


def test_values_are_read_as_toml_and_else_as_text() -> None:
    texts = ["1", "1.0", "1e-3", "true", '"8"', "4x4", "tiny", " a = b ", "1\nseed = 2"]
    values = [config.parse_scalar(text) for text in texts]
    assert values == [1, 1.0, 1e-3, True, "8", "4x4", "tiny", "a = b", "1\nseed = 2"]


def _toml(value: object) -> str:
    return toml_text.render({"x": value}).partition("=")[2].strip()


scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
keys = st.text(st.characters(exclude_categories=["Cs"]))
trees = st.recursive(
    st.dictionaries(keys, st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=4),
    lambda inner: st.dictionaries(keys, st.one_of(scalars, inner), max_size=4),
    max_leaves=8,
)


@given(trees)
def test_written_toml_reads_back_equal(tree: dict[str, object]) -> None:
    assert tomllib.loads(toml_text.render(tree)) == tree
