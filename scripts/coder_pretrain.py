"""Train the coder's base: the weights that `--model coder` begins with.

    python scripts/coder_pretrain.py [--minutes 60] [--processes 2] [--seed 0] [--out trainer/models/coder/base.safetensors]

What it sees: functions of Python's standard library and of installed packages with a permissive licence, a few to a file,
each file with up to six bugs of the families that `swe` trains on (never of the unseen ones, and nothing of
`sandboxes/swe/packages`), told as the environment tells it: the files of the project, a report that mentions a function, an
invented failure of a test, the file. What it learns: how to look at tests and files with the tools, and the
edit that takes a bug back, one after the other, each undone before the next, so that later ones look elsewhere; to submit
when tests pass. What to do when they still fail is not trained: that is for imitation and reinforcement.

It prints the loss and, at the end, how often one sampled edit repairs tasks of each split of `swe`. It saves every five
minutes; minutes are of processor time.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import sysconfig
import tempfile
import time
import tokenize
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import distributed as dist
from torch import multiprocessing

from agent_runtime.policy import Message, SampleRequest
from agent_runtime.types import IntArray, SamplingParams
from sandboxes.swe import factory
from sandboxes.swe.bugs.mutate import TRAIN_FAMILIES, Bug, bugs_in
from sandboxes.swe.bugs.source import Source
from trainer.models.coder.engine import BASE, CoderOptions, TrainedCoder
from trainer.models.coder.net import CoderShape
from trainer.models.coder.sampling import CoderInference
from trainer.models.coder.template import CoderChatTemplate
from trainer.models.coder.words import EDIT, CoderWords

BATCH, MOST_TOKENS, MOST_LINES, MOST_BUGS = 12, 1200, 40, 6
SAVE_EVERY_S = 300.0
PACKAGES = (
    "gymnasium",
    "jinja2",
    "joblib",
    "matplotlib",
    "mpmath",
    "networkx",
    "nltk",
    "numpy",
    "pygments",
    "pyparsing",
    "reasoning_gym",
    "rich",
    "sortedcontainers",
    "sympy",
    "werkzeug",
)
SKIPPED = {
    "site-packages",
    "test",
    "idlelib",
    "lib2to3",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "pydoc_data",
    "encodings",
}
WORDS = CoderWords.built_in()
TEMPLATE = CoderChatTemplate(WORDS, 2048)
Functions = list[tuple[str, str]]
Example = tuple[IntArray, list[tuple[int, float]]]
"""Tokens of a chat, and the places whose next token is to be learned, each with a weight."""


def corpus() -> list[Functions]:
    """Return (name, source) of the short functions of each module, each function once."""
    library, installed = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    folders = [path for path in sorted(library.iterdir()) if path.name not in SKIPPED]
    folders += [installed / package for package in PACKAGES]
    paths = [
        path
        for folder in folders
        for path in ([folder] if folder.is_file() else sorted(folder.rglob("*.py")))
    ]
    found, seen = [], set[str]()
    for path in paths:
        if path.suffix != ".py" or any("test" in part for part in path.parts[-3:]):
            continue
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        functions = []
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef)
                and thinks(node)
                and (text := plain(node))
                and text not in seen
            ):
                seen.add(text)
                functions.append((node.name, text))
        if len(functions) > 1:
            found.append(functions)
    return found


def thinks(node: ast.FunctionDef) -> bool:
    """Return whether a function computes or decides; methods, most of which hand on, must do more of it."""
    work = (ast.Compare, ast.BinOp, ast.AugAssign, ast.BoolOp, ast.For, ast.While, ast.Subscript)
    method = bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
    return sum(isinstance(inner, work) for inner in ast.walk(node)) > (2 if method else 0)


def plain(node: ast.FunctionDef) -> str:
    """Return a function as small projects write it: no decorators, no types, one line of docstring; empty if it is long."""
    node.decorator_list, node.returns = [], None
    for argument in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs):
        argument.annotation = None
    if (said := ast.get_docstring(node)) and len(node.body) > 1:
        line = said.strip().split("\n")[0][:70].replace('"', "'").replace("\\", "")
        node.body[0] = ast.Expr(ast.Constant(line))
    text = ast.unparse(node)
    lines = text.split("\n")
    if not 3 <= len(lines) <= 16 or max(map(len, lines)) > 88 or not text.isascii():
        return ""
    text = double_quoted(text)
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return text


def double_quoted(text: str) -> str:
    """Return a source with its strings in double quotes."""
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        single = token.type == tokenize.STRING and token.string[:1] == "'" and '"' not in token.string
        if single and "'''" not in token.string:
            token = token._replace(string=f'"{token.string[1:-1]}"')
        tokens.append(token)
    return tokenize.untokenize(tokens).replace("'''", '"""')


def examples(seed: int, modules: list[Functions]) -> Iterator[Example]:
    """Yield chats without end."""
    rng = random.Random(seed)
    weights = [min(len(functions), 40) for functions in modules]
    names = [name for functions in modules for name, _ in functions]
    while True:
        functions = rng.choices(modules, weights)[0]
        chosen = rng.sample(functions, min(rng.randint(1, 4), len(functions)))
        if len({name for name, _ in chosen}) < len(chosen):
            continue
        text = as_file(rng, [source for _, source in chosen], rng.choice(names))
        if text.count("\n") > MOST_LINES:
            continue
        text, bugs = bugged(rng, text, rng.choice(chosen)[0])
        if not bugs:
            continue
        named = bugs[0].function.rpartition(".")[2] if rng.random() < 0.85 else rng.choice(chosen)[0]
        story = Story(rng, rng.choice(names), rng.sample(names, rng.randint(2, 4)), named, text)
        if example := story.told(bugs):
            yield example


def as_file(rng: random.Random, sources: list[str], name: str) -> str:
    """Return a file of some functions; methods of one class where all can be."""
    text = "\n\n\n".join(sources)
    if all(source.partition("(")[2].startswith("self") for source in sources):
        inside = "\n\n".join(sources).replace("\n", "\n    ").replace("\n    \n", "\n\n")
        text = f"class {name.strip('_').capitalize() or 'Thing'}:\n    {inside}"
    return f'"""Module."""\n\n\n{text}' if rng.random() < 0.8 else text


def bugged(rng: random.Random, text: str, favoured: str) -> tuple[str, list[Bug]]:
    """Return the file with some bugs planted, most of them in one function, and those that can be taken back."""
    source = Source(text)
    offered = []
    for family in rng.sample(TRAIN_FAMILIES, 3):
        bugs = bugs_in(source, family)
        if family == "missing_edge_case":  # such a guard is mostly words that nothing in the file tells
            bugs = tuple(bug for bug in bugs if rng.random() < 0.4)
        offered += rng.sample(bugs, min(len(bugs), MOST_BUGS))
    rng.shuffle(offered)
    offered.sort(key=lambda bug: bug.function.rpartition(".")[2] != favoured and rng.random() < 0.8)
    wanted, planted = rng.choice((1, 1, 2, 3, 4, MOST_BUGS)), list[Bug]()
    for bug in offered:
        touched = set(bug.old.split("\n")) | set(bug.new.split("\n"))
        apart = all(touched.isdisjoint((*one.old.split("\n"), *one.new.split("\n"))) for one in planted)
        if len(planted) < wanted and apart and text.count(bug.old) == 1:
            text = text.replace(bug.old, bug.new)
            planted.append(bug)
    return text, [bug for bug in planted if text.count(bug.new) == 1]


class Story:
    """A chat in which somebody repairs a project, in the environment's words."""

    def __init__(self, rng: random.Random, package: str, modules: list[str], named: str, text: str) -> None:
        self._rng, self._named, self._text = rng, named, text
        self._modules, self._package = sorted(modules), package
        self._module = rng.choice(modules)
        self._path = f"{package}/{self._module}.py"
        self._call = f"{named}({', '.join(value(rng) for _ in range(rng.randint(1, 3)))})"
        self._ids = np.zeros(0, np.int32)
        self._places: list[tuple[int, float]] = []

    def told(self, bugs: list[Bug]) -> Example | None:
        """Return the chat that takes each bug back and, but for the last, that again; None where it is too long."""
        rng = self._rng
        got, wanted = outcome(rng, bugs[0])
        report = f"`{self._call}` returns {got}; it should be {wanted}."
        files = ["README.md", f"{self._package}/__init__.py"]
        files += [f"{self._package}/{name}.py" for name in self._modules]
        files += [f"tests/test_{name}.py" for name in self._modules]
        self._ids = TEMPLATE.open([Message("user", begun(self._package, "\n".join(files), report))])
        failed = self._failure(bugs[0])
        if rng.random() < 0.95:
            self._do("run_tests", failed)
        if rng.random() < 0.1:
            self._do(f"view {files[1]}", f'{files[1]} (lines 1-1 of 1)\n"""{self._named}."""', weight=0)
        count = self._text.count("\n") + 1
        shown = f"{self._path} (lines 1-{count} of {count})\n{self._text}"
        self._do(f"view {self._path}", shown, weight=1.0)  # which file is the larger half of finding a bug
        ordered = rng.sample(bugs, len(bugs))
        ordered.sort(
            key=lambda bug: bug is not bugs[0] and rng.random() < 0.6
        )  # what the failure tells of is likely first
        edits = [edit for bug in ordered if (edit := self._edit(bug)) is not None]
        if not edits:
            return None
        for number, (answer, reply) in enumerate(edits):
            self._answer(
                answer, reply, weight=len(edits) ** -0.5
            )  # more edits say more, though not as many times
            if number == len(edits) - 1:
                self._do(
                    "run_tests", f"[exit code 0]\n{'.' * rng.randint(4, 16)}\n{rng.randint(4, 16)} passed"
                )
                self._do("submit", "Submitted.")
                break
            if rng.random() < 0.5:
                self._do("run_tests", failed)
            self._do("undo", f"Undone: {self._path} is as before that edit.", weight=0)
        if len(self._ids) > MOST_TOKENS:
            return None
        return self._ids, self._places

    def _edit(self, bug: Bug) -> tuple[IntArray, str] | None:
        text = f"edit {self._path}\n<<<<<<<\n{bug.new}\n=======\n{bug.old}\n>>>>>>>"
        answer = TEMPLATE.encode_completion(text, self._ids)
        if answer[0] != EDIT or len(answer) > 30:
            return None
        line = self._text[: self._text.index(bug.new)].count("\n") + 1
        return answer, f"Edited {self._path}: lines {line}-{line + bug.old.count(chr(10))}."

    def _do(self, action: str, reply: str, *, weight: float = 0.3) -> None:
        """Add an action and what came of it; how to proceed is soon learned, so it weighs little."""
        points = self._ids if action.startswith("view") else None
        self._answer(TEMPLATE.encode_completion(action, points), reply, weight=weight)

    def _answer(self, answer: IntArray, reply: str, *, weight: float) -> None:
        first = len(self._ids) - 1
        if weight:
            self._places += [(place, weight) for place in range(first, first + len(answer))]
        self._ids = np.concatenate(
            (self._ids, answer, TEMPLATE.extend([Message("user", reply)], closed=True))
        )

    def _failure(self, bug: Bug) -> str:
        """Return what the tests print."""
        rng, named = self._rng, self._named
        got, wanted = outcome(rng, bug)
        lines = [f"tests/test_{self._module}.py:{rng.randint(5, 60)}: in test_{named}"]
        lines += [f"    assert {self._call} == {wanted}"]
        if rng.random() < 0.25:  # an exception on its way through the file
            shown = self._text.split("\n")
            at = (
                self._text[: self._text.index(bug.new)].count("\n")
                if rng.random() < 0.6
                else rng.randrange(len(shown))
            )
            error = rng.choice(
                ("TypeError: unsupported", "IndexError: list index out of range", "KeyError: 0")
            )
            lines += [f"{self._path}:{at + 1}: in {named}", f"    {shown[at].strip()}", f"E   {error}"]
        else:
            lines += [f"E   assert {got} == {wanted}", f"E    +  where {got} = {self._call}"]
        before = rng.randint(0, 9)
        return "\n".join(
            (
                "[exit code 1]",
                "." * before + "F",
                " FAILURES ".center(60, "="),
                f" test_{named} ".center(60, "_"),
                *lines,
                " stopping after 1 failures ".center(60, "!"),
                f"1 failed, {before} passed" if before else "1 failed",
            )
        )


def outcome(rng: random.Random, bug: Bug) -> tuple[str, str]:
    """Return what a function with the bug gave, and what it should have given: most often, what such a bug does."""
    wanted = value(rng)
    if bug.family == "missing_return" and rng.random() < 0.9:
        return "None", wanted if wanted != "None" else "0"
    if bug.family == "off_by_one" and rng.random() < 0.7:
        number, items = rng.randint(0, 12), rng.sample(range(10), rng.randint(1, 5))
        ends = (items[1:], items[:-1]) if rng.random() < 0.5 else (items[:-1], items[1:])
        return rng.choice(
            ((str(number + 1), str(number)), (str(number), str(number + 1)), (str(ends[0]), str(items)))
        )
    if bug.family in ("wrong_operator", "missing_edge_case") and rng.random() < 0.4:
        truth = rng.random() < 0.5
        return str(truth), str(not truth)
    return value(rng), wanted


def value(rng: random.Random) -> str:
    """Return a value as Python writes it."""
    few = rng.sample(range(10), rng.randint(0, 3))
    return rng.choice(
        (str(rng.randint(0, 9)), str(rng.randint(-9, 99)), str(few), '"a b"', '""', "None", "True", "0")
    )


def begun(project: str, files: str, report: str) -> str:
    """Return the first observation, as `swe` words it."""
    return f"You are in the project folder /workspace/{project}. Its files:\n{files}\n\nThe bug report:\n{report}"


def viewed(first: str, path: str, text: str) -> IntArray:
    """Return the chat in which a file was looked at after the first message."""
    ids = TEMPLATE.open([Message("user", first)])
    count = text.count("\n") + 1
    reply = Message("user", f"{path} (lines 1-{count} of {count})\n{text}")
    return np.concatenate(
        (ids, TEMPLATE.encode_completion(f"view {path}", ids), TEMPLATE.extend([reply], closed=True))
    )


def loss_of(net: TrainedCoder, batch: list[Example]) -> torch.Tensor:
    """Return the sum of the weighted negative log-likelihoods of the chats."""
    tokens_UT = torch.zeros(len(batch), max(len(ids) - 1 for ids, _ in batch), dtype=torch.int64)
    longest = max(len(places) for _, places in batch)
    at_UM = torch.zeros(len(batch), longest, dtype=torch.int64)
    source, targets, weights = [], [], []
    for u, (ids, places) in enumerate(batch):
        tokens_UT[u, : len(ids) - 1] = torch.from_numpy(ids[:-1].astype(np.int64))
        for m, (place, weight) in enumerate(places):
            at_UM[u, m] = place
            source.append(u * longest + m)
            targets.append(int(ids[place + 1]))
            weights.append(weight)
    values_N, _ = net.picked(tokens_UT, at_UM, torch.tensor(source), torch.tensor(targets))
    return -(values_N * torch.tensor(weights)).sum()


def repaired(net: TrainedCoder, split: str, *, tasks: int = 80, samples: int = 10) -> tuple[float, float]:
    """Return how often one sampled edit is the fix, and how often one of `samples` is."""
    planted = [task for task in factory.read_index().tasks if task.split == split]
    chosen = random.Random(3).sample(planted, tasks)
    prompts, requests = [], []
    for task in chosen:
        whole = factory.load(task.key)
        listing = "\n".join(path for path, _ in whole.repo)
        first = begun(whole.name, listing, whole.report)
        bad = dict(whole.repo)[task.file].decode().rstrip("\n")
        prompts.append((viewed(first, task.file, bad), bad, task))
        for sample in range(samples):
            params = SamplingParams(max_tokens=24)
            requests.append(
                SampleRequest(f"{task.key}/{sample}", 0, prompts[-1][0], params, sample * 7919 + len(prompts))
            )
    completions = CoderInference(net, max_rows=32, kept=1).sample(requests)
    hits = []
    for number, (prompt, bad, task) in enumerate(prompts):
        good = bad.replace(task.new, task.old)
        texts = [
            TEMPLATE.decode(each.ids, prompt)
            for each in completions[number * samples : (number + 1) * samples]
        ]
        hits.append([_applied(text, bad) == good for text in texts])
    return float(np.mean(hits)), float(np.mean([any(row) for row in hits]))


def _applied(action: str, text: str) -> str:
    old, _, new = action.partition("\n<<<<<<<\n")[2].removesuffix("\n>>>>>>>").partition("\n=======\n")
    return text.replace(old, new) if old and text.count(old) == 1 else ""


def train(rank: int, options: argparse.Namespace, modules: list[Functions]) -> None:
    """Train in one of the processes; the first one reports and saves."""
    dist.init_process_group("gloo", init_method=options.meet, rank=rank, world_size=options.processes)
    torch.set_num_threads(1)
    net = fresh(options)
    parameters = list(net.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=options.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    stream = examples(options.seed * options.processes + rank, modules)
    recent, began_s, step, saved_s = deque[float](maxlen=400), time.process_time(), 0, 0.0
    done = torch.zeros(1)
    while done[0] < 1:
        batch = sorted((next(stream) for _ in range(BATCH)), key=lambda pair: len(pair[0]))
        for part in (batch[: BATCH // 2], batch[BATCH // 2 :]):  # rows of similar length
            loss = loss_of(net, part) / (BATCH * options.processes)
            loss.backward()
            recent.append(2 * options.processes * float(loss.detach()))
        none = [each.new_zeros(each.numel()) for each in parameters]
        whole = torch.cat(
            [
                zero if each.grad is None else each.grad.flatten()
                for each, zero in zip(parameters, none, strict=True)
            ]
        )
        dist.all_reduce(whole)
        for each, part in zip(
            parameters, torch.split(whole, [each.numel() for each in parameters]), strict=True
        ):
            each.grad = part.view_as(each)
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1.0, (step + 1) / 100) * max(0.02, 1 - float(done))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        passed_s = time.process_time() - began_s  # the same training beside other work, and through a pause
        done[0] = passed_s / (60 * options.minutes)
        dist.broadcast(done, 0)  # all stop at the same step
        if rank == 0 and step % 250 == 0:
            print(
                f"{step * BATCH * options.processes} chats, {float(done):.0%}: loss {np.mean(recent):.3f}",
                flush=True,
            )
        if rank == 0 and passed_s - saved_s > SAVE_EVERY_S:
            saved_s = passed_s
            save(net, options)
    if rank == 0:
        save(net, options)


def fresh(options: argparse.Namespace) -> TrainedCoder:
    """Return the network to begin with."""
    shape = CoderOptions()
    net = TrainedCoder(
        WORDS, CoderShape(shape.layers, shape.width, shape.heads, shape.max_context), options.seed
    )
    if options.start is not None:
        net.load_state_dict({name: value.float() for name, value in load_file(options.start).items()})
    return net


def save(net: TrainedCoder, options: argparse.Namespace) -> None:
    """Write the weights, whole or not at all."""
    half = {name: value.detach().half().contiguous() for name, value in net.named_parameters()}
    part = options.out.with_suffix(".part")
    save_file(half, part)
    part.replace(options.out)


def main() -> None:
    """Train, save, and say how good it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of a process; 0: only rate --start")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=BASE)
    parser.add_argument("--start", type=Path, help="weights to go on from")
    options = parser.parse_args()
    if options.minutes:
        with tempfile.TemporaryDirectory() as folder:
            options.meet = f"file://{folder}/meet"
            multiprocessing.spawn(train, (options, corpus()), nprocs=options.processes)
        options.start = options.out
    net = fresh(options)
    for split in factory.SPLITS:
        once, ever = repaired(net, split)
        print(f"{split}: one edit repairs {once:.3f}, one of ten {ever:.3f}")


if __name__ == "__main__":
    main()
