"""Makes the repository that the instances beside this file are about: `acme/ledger`, always with the same commit ids.

Run `python toy_repository.py FOLDER`: it makes the bare repository FOLDER/acme__ledger.git. Each step of the history is
a folder in `ledger/`, named after its order; files end in `.txt` so that no tool takes them for this project's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = Path(__file__).parent / "ledger"


def git(folder: Path, *words: str, minute: int = 0) -> str:
    when = f"2023-04-01T10:{minute:02}:00+00:00"
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "Acme", f"GIT_{who}_EMAIL": "dev@acme.example", f"GIT_{who}_DATE": when}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(words)}: {done.stderr}")
    return done.stdout.strip()


def make(folder: Path) -> list[str]:
    """Make the bare repository below `folder`; return its commits, oldest first."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        git(work, "init", "-q", "-b", "main", "--template=")
        for minute, step in enumerate(sorted(STEPS.iterdir())):
            for path in work.iterdir():
                if path.name != ".git":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in sorted(step.rglob("*.txt")):
                target = work / path.relative_to(step).with_suffix("")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
            git(work, "add", "--all", "--force")
            message = (step / "MESSAGE").read_text()
            git(work, "commit", "-q", "-m", message, minute=minute)
        git(work, "tag", "v1.0")
        bare = folder / "acme__ledger.git"
        git(work, "clone", "-q", "--bare", "--template=", str(work), str(bare))
        return git(work, "rev-list", "--reverse", "HEAD").splitlines()


if __name__ == "__main__":
    sys.stdout.write("\n".join(make(Path(sys.argv[1]))) + "\n")
