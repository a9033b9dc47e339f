"""Build the wheel and the source distribution of the last commit, twice, and print their digests.

Each build starts from its own export of the commit, in its own folder, with the commit's time as SOURCE_DATE_EPOCH. Two
builds that differ are an error: what is released must be what anyone gets from the same commit.

    python scripts/build_release.py [--out dist]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Build twice, compare, and keep the first build in `--out`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the two files are kept")
    out: Path = parser.parse_args().out
    if changed := _git("status", "--porcelain").decode():
        print(f"build_release: not in the build, since they are in no commit:\n{changed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="ale-release-") as scratch:
        first, second = (_build(Path(scratch) / name) for name in ("first", "second"))
        if first != second:
            sys.exit(f"build_release: two builds of one commit differ.\nfirst:  {first}\nsecond: {second}")
        out.mkdir(parents=True, exist_ok=True)
        for name, digest in first.items():
            shutil.copyfile(Path(scratch) / "first/dist" / name, out / name)
            print(f"{digest}  {out / name}")


def _build(folder: Path) -> dict[str, str]:
    """Build in a new folder and return the digest of each file, by name."""
    source, dist = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", source], input=_git("archive", "HEAD"), check=True)
    when = _git("log", "-1", "--format=%ct").decode().strip()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", dist],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": when},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(dist.iterdir())}


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


if __name__ == "__main__":
    main()
