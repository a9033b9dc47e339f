"""Regenerate the Python code of every `.proto` beside it: `python scripts/gen_protos.py [--check]`.

Run by hand after an edit and by CI with `--check`, which writes nothing and fails if a committed file differs.
Needs grpcio-tools (the `dev` extra). Paths are relative to the repository root, so imports match (`-I .`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def generate(protos: list[Path], out: Path) -> None:
    """Run protoc over `protos` into `out`; exit with its message on failure."""
    arguments = ["protoc", f"-I{ROOT}", f"-I{files('grpc_tools') / '_proto'}"]
    arguments += [f"--{kind}={out}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    if protoc.main([*arguments, *map(str, protos)]) != 0:
        raise SystemExit("protoc failed, see its message above")
    for proto in protos:  # a file without a service gets no stub module
        if "\nservice " not in proto.read_text():
            (out / proto.relative_to(ROOT)).with_name(proto.stem + "_pb2_grpc.py").unlink()


def main() -> int:
    """Generate in place, or compare with what is committed."""
    parser = argparse.ArgumentParser(description="Regenerate the protobuf code.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    protos = sorted((ROOT / "rock_env" / "proto").rglob("*.proto"))
    if not check:
        generate(protos, ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(protos, Path(folder))
        fresh = {p.relative_to(folder): p.read_bytes() for p in Path(folder).rglob("*_pb2*")}
    committed = {
        p.relative_to(ROOT): p.read_bytes()
        for p in (ROOT / "rock_env" / "proto").rglob("*_pb2*")
        if p.name.endswith(SUFFIXES)
    }
    stale = sorted(str(p) for p in fresh.keys() | committed.keys() if fresh.get(p) != committed.get(p))
    if stale:
        sys.stderr.write(
            f"generated code is stale: {', '.join(stale)}. Run `python scripts/gen_protos.py` and commit.\n"
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
