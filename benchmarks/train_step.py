"""What a step of training takes on a processor, beside TRL's GRPOTrainer and beside plain torch with `generate`.

`python -m benchmarks.train_step [--quick] [--part steps|checkpoints|smollm2]`. A step samples answers to prompts, gives
them to an update of GRPO, and takes the new weights to what samples. All three have the same random model of 0.16 or
3.4 million parameters, the same prompts, as many tokens (no answer ends early), float32, AdamW and one thread, and take
their steps in turns in one process. Without `trl` its ratios are null, and the line before the last says why. The last
line is one JSON object:

- `over_plain_0_16m`, `over_plain_3_4m`: ALE's step over plain torch's, a ratio of medians (goals: .75 and .90);
- `over_trl_0_16m`, `over_trl_3_4m`: ALE's step over TRL's (goals: .55 and .85);
- `over_plain_smollm2`, `over_trl_smollm2` (only with `--part smollm2`): the same of SmolLM2-135M-Instruct, all of whose
  weights train, three rounds (goal over TRL: .80);
- `checkpoint_share`: by how much of its time a step of 3.4 million parameters takes longer because a checkpoint, with its
  moments, is written beside it (goal: .03); `checkpoint_share_waited`: because one is waited for before it, as it was once.
  Three kinds of step by turns, a ratio of medians; `checkpoint_cpu_share`, `checkpoint_cpu_share_waited`: the same of the
  processor time of what follows one another (sampling, update, what is waited for), which other work changes less.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from benchmarks.models import batch_of
from benchmarks.scaffold import finish, parser_of, seconds_of
from trainer import checkpoint
from trainer.algo.grpo import GRPO, GRPOOptions
from trainer.algo.terms.monitors import Monitors
from trainer.data.batch import Counts, TrainBatch
from trainer.files.finishing import Finishing
from trainer.models.hf import ENGINE, HFOptions
from trainer.models.named import check_fetched, named_models
from trainer.protocols.engines import OptimOptions
from trainer.run_state import RunState
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch
from trainer.samplers.hf.ragged import RaggedModel

PROMPTS, ANSWERS = 4, 8
"""Tasks of a step, and rollouts of each."""
PROMPT_TOKENS, ANSWER_TOKENS = 96, 32
LR = 1e-5
WORDS = [
    f"where is the hidden door of the old tower number {n}".ljust(PROMPT_TOKENS, ".") for n in range(PROMPTS)
]


@dataclass(frozen=True, slots=True)
class Size:
    """A model's shape."""

    width: int
    inner: int
    layers: int
    heads: int


SIZES = {"0_16m": Size(64, 256, 2, 4), "3_4m": Size(256, 800, 4, 8)}
ON_GPU = {"0_3b": Size(1_024, 3_072, 24, 16)}


def words_of(folder: str) -> list[str]:
    """Return prompts that have `PROMPT_TOKENS` tokens each for the model of a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    for words in WORDS:
        told = words if len(tokenizer(words).input_ids) == PROMPT_TOKENS else words.rstrip(".")
        while len(tokenizer(told).input_ids) < PROMPT_TOKENS:
            told += " door"
        found.append(told)
    return found


def written(folder: Path, size: Size) -> str:
    """Write a random model with a byte-level tokenizer; return where."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: i for i, letter in enumerate([*letters, "<end>"])}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=257,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2,
        max_position_embeddings=512,
        eos_token_id=256,
        pad_token_id=256,
        bos_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def fetched(name: str) -> str:
    """Return the folder of a named model. Raise `ConfigError` if it was not fetched (`ale model get NAME`)."""
    check_fetched(name)
    return str(named_models()[name].folder)


def model_of(folder: str, device: str) -> Any:
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.to(device)


def reward_of(ids: list[int]) -> float:
    """Return what an answer is paid: the share of its tokens with an even id."""
    return sum(token % 2 == 0 for token in ids) / len(ids)


def advantages_of(rewards_N: np.ndarray) -> np.ndarray:
    """Return each answer's reward less its group's mean, over the group's deviation."""
    groups = rewards_N.reshape(PROMPTS, ANSWERS)
    apart = groups - groups.mean(1, keepdims=True)
    advantages: np.ndarray = apart / (groups.std(1, keepdims=True) + 1e-4)
    return advantages.reshape(-1)


class Ours:
    """ALE's engine: sampler, update and hand-over of the weights."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        options = HFOptions(device=device)
        self.train = ENGINE.train(folder, options, 0, OptimOptions(lr=LR, microbatch_tokens=1 << 16))
        ragged = RaggedModel(model_of(folder, device), max_context=512)
        self._sampler = ContinuousBatch(ragged, end_id=-1, bounds=Bounds())  # no answer ends early
        self._sampler.load(self.train.weights(), 0)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._prompts = [np.array(tokenizer(words).input_ids, np.int32) for words in words_of(folder)]
        self._loss = GRPO.build(GRPOOptions.model_validate({})).loss
        self._steps = 0
        self.update_cpu_s = 0.0
        self.learn: Callable[[Callable[[], None]], None] = lambda learn: learn()

    def step(self) -> None:
        requests = [
            SampleRequest(
                f"{self._steps}.{p}.{a}",
                0,
                prompt,
                SamplingParams(max_tokens=ANSWER_TOKENS),
                self._steps * 1000 + a,
            )
            for p, prompt in enumerate(self._prompts)
            for a in range(ANSWERS)
        ]
        sampled = self._sampler.sample(requests)
        batch = self._batch(requests, [each.ids for each in sampled], [each.logprobs for each in sampled])
        self.learn(lambda: self._update(batch))
        self._steps += 1
        self._sampler.load(self.train.weights(), self._steps)

    def _update(self, batch: TrainBatch) -> None:
        began = thread_time()
        self.train.step(batch, Monitors().watch(self._loss), lr=LR)
        self.update_cpu_s = thread_time() - began

    def _batch(self, requests: list[SampleRequest], ids: list[Any], logprobs: list[Any]) -> TrainBatch:
        tokens_BT = torch.tensor(
            np.stack([np.concatenate((r.prompt_ids, i)) for r, i in zip(requests, ids, strict=True)]),
            dtype=torch.int64,
        )
        mask_BT = torch.zeros(tokens_BT.shape, dtype=torch.bool)
        mask_BT[:, PROMPT_TOKENS:] = True
        mu_BT = torch.zeros(tokens_BT.shape)
        mu_BT[:, PROMPT_TOKENS:] = torch.tensor(np.stack(logprobs))
        advantage_B = torch.tensor(
            advantages_of(np.array([reward_of(i.tolist()) for i in ids])), dtype=torch.float32
        )
        rows = torch.arange(len(tokens_BT))
        return batch_of(
            tokens_BT,
            mask_BT,
            rollout_logprobs_BT=mu_BT,
            advantages_BT=torch.where(mask_BT, advantage_B[:, None], 0.0),
            positive_BT=mask_BT & (advantage_B > 0)[:, None],
            policy_version_BT=torch.where(mask_BT, self._steps, -1),
            counts=Counts(len(rows), int(mask_BT.sum()), len(rows)),
            trajectory_tokens_B=torch.full((len(rows),), ANSWER_TOKENS),
            group_index_B=rows // ANSWERS,
        )


class Plain:
    """Plain torch: Transformers' `generate`, one forward pass over padded rows, the clipped loss, AdamW."""

    def __init__(self, folder: str, device: str) -> None:
        self._model = model_of(folder, device).eval()
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 256
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=LR, fused=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids = torch.tensor(tokenizer(words_of(folder)).input_ids)
        self._prompts = ids.repeat_interleave(ANSWERS, 0).to(device)

    def step(self) -> None:
        with torch.no_grad():
            rows = self._model.generate(
                self._prompts,
                attention_mask=torch.ones_like(self._prompts),
                do_sample=True,
                top_k=0,
                max_new_tokens=ANSWER_TOKENS,
            )
        answers = rows[:, PROMPT_TOKENS:]
        advantage = torch.tensor(
            advantages_of(np.array([reward_of(answer) for answer in answers.tolist()])),
            dtype=torch.float32,
            device=rows.device,
        )[:, None]
        logits = self._model(rows, logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
        logprobs = torch.log_softmax(logits, -1).gather(2, answers[:, :, None])[:, :, 0]
        ratio = (logprobs - logprobs.detach()).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def rounds_with_trl(
    folder: str, others: dict[str, Callable[[], None]], rounds: int, out: Path, device: str
) -> dict[str, list[float]]:
    """Take steps in turns with TRL's trainer, whose callback steps the others before each of its own."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    taken: dict[str, list[float]] = {name: [] for name in (*others, "trl")}

    class InTurns(transformers.TrainerCallback):
        began = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            for name, step in others.items():
                taken[name].append(seconds_of(step))
            self.began = perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            taken["trl"].append(perf_counter() - self.began)

    config = GRPOConfig(
        output_dir=str(out),
        use_cpu=device == "cpu",
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=PROMPTS * ANSWERS,
        num_generations=ANSWERS,
        max_completion_length=ANSWER_TOKENS,
        generation_kwargs={"min_new_tokens": ANSWER_TOKENS},
        beta=0.0,
        learning_rate=LR,
        lr_scheduler_type="constant",
        max_steps=rounds,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
    )
    trainer = GRPOTrainer(
        model=model_of(folder, device),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder),
        reward_funcs=lambda completion_ids, **_: [reward_of(ids) for ids in completion_ids],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": words_of(folder)}),
        callbacks=[InTurns()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return taken


def measured(size: str, rounds: int, why: str, *, device: str = "cpu") -> dict[str, float | None]:
    """Return the two ratios of a size."""
    with tempfile.TemporaryDirectory() as place:
        known = SIZES | ON_GPU
        folder = written(Path(place) / "model", known[size]) if size in known else fetched(size)
        steps = {"ours": Ours(folder, device).step, "plain": Plain(folder, device).step}
        for step in steps.values():  # what the first step alone does
            step()
        if why:
            taken: dict[str, list[float]] = {name: [] for name in steps}
            for _ in range(rounds):
                for name, step in steps.items():
                    taken[name].append(seconds_of(step))
        else:
            taken = rounds_with_trl(folder, steps, rounds + 1, Path(place) / "trl", device)
            taken = {name: values[1:] for name, values in taken.items()}
    medians = {name: median(values) for name, values in taken.items()}
    said = ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in medians.items())
    print(f"{size}: {said} (medians of {rounds})", flush=True)
    return {
        f"over_plain_{size}": round(medians["ours"] / medians["plain"], 3),
        f"over_trl_{size}": None if why else round(medians["ours"] / medians["trl"], 3),
    }


class Saving:
    """ALE's step with a learner that does what it is asked in order, as its actor does, and checkpoints of its state."""

    def __init__(self, folder: str, checkpoints: Path) -> None:
        self._ours, self._checkpoints = Ours(folder), checkpoints
        self._learner, self._finishing = ThreadPoolExecutor(1), Finishing()
        self._learner.submit(torch.set_num_threads, 1).result()
        self._number = 0
        self._ours.learn = lambda learn: self._learner.submit(learn).result()

    def step(self, kind: str) -> tuple[float, float]:
        """Save, or not, and take the next step; return its seconds, and the processor's of what follows one another."""
        began, used = perf_counter(), process_time()
        if kind != "none":
            self._save()
        if kind == "waited":
            self._finishing.wait()
        waited = process_time() - used
        mine = thread_time()
        self._ours.step()
        mine = waited + thread_time() - mine + self._ours.update_cpu_s
        taken = perf_counter() - began
        self._finishing.wait()  # what is left of it is no other step's
        return taken, mine

    def _save(self) -> None:
        self._number += 1
        train = self._ours.train

        def begin(into: Path) -> Callable[[], object]:
            return self._learner.submit(train.save, into).result

        write = checkpoint.begin(
            self._checkpoints, self._number, RunState(self._number), engine=begin, keep=2
        )
        self._finishing.begin(lambda: [write()].clear())


KINDS = ("none", "beside", "waited")


def checkpoints(rounds: int) -> dict[str, float | None]:
    """Return what a checkpoint adds to a step of 3.4 million parameters."""
    with tempfile.TemporaryDirectory() as place:
        saving = Saving(written(Path(place) / "model", SIZES["3_4m"]), Path(place) / "checkpoints")
        taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for number in range(rounds + 1):
            for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
                found = saving.step(kind)
                taken[kind] += [found] if number else []  # what the first step alone does
    wall, cpu = ({kind: median(t[which] for t in taken[kind]) for kind in KINDS} for which in (0, 1))
    for kind in KINDS:
        print(
            f"checkpoint {kind}: {wall[kind] * 1e3:.0f} ms, {cpu[kind] * 1e3:.0f} ms of processor time",
            flush=True,
        )
    return {
        "checkpoint_share": round(wall["beside"] / wall["none"] - 1, 4),
        "checkpoint_share_waited": round(wall["waited"] / wall["none"] - 1, 4),
        "checkpoint_cpu_share": round(cpu["beside"] / cpu["none"] - 1, 4),
        "checkpoint_cpu_share_waited": round(cpu["waited"] / cpu["none"] - 1, 4),
    }


def main() -> None:
    parser = parser_of(__doc__, quick="5 rounds instead of 25")
    parser.add_argument("--part", choices=["steps", "checkpoints", "smollm2"])
    options = parser.parse_args()
    rounds = 5 if options.quick else 25
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    found: dict[str, float | None] = {}
    if options.part == "smollm2":
        found = compared(["smollm2"], 3)
    if options.part in (None, "steps"):
        found |= compared(list(SIZES), rounds)
    if options.part in (None, "checkpoints"):
        found |= checkpoints(rounds)
    finish(dict(sorted(found.items())))


def missing_trl() -> str:
    """Return why there is no comparison with TRL; empty where there is one."""
    missing = " and ".join(name for name in ("trl", "datasets") if find_spec(name) is None)
    return f"no comparison with TRL: {missing} not installed here (pip install trl)" if missing else ""


def compared(sizes: Sequence[str], rounds: int) -> dict[str, float | None]:
    """Return the ratios of these sizes."""
    why = missing_trl()
    found: dict[str, float | None] = {}
    for size in sizes:
        found |= measured(size, rounds, why)
    if why:
        print(why)
    return found


if __name__ == "__main__":
    main()
