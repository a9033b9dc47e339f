"""Which pages of docs/results were measured on code that has changed since: a line of theirs says so.

    python -m benchmarks.claims                        # `make claims`: bring these lines up to date
    python -m benchmarks.claims PAGE COMMIT PATH...    # say that a page was measured at a commit and depends on these

Below its title a page names the commit, and the files and folders that its figures depend on, each with a digest of what
was measured. They are chosen coarsely: a line too many costs less than a figure that nobody doubts. The last line printed is
one JSON object. `write_results` of `benchmarks.scaffold` keeps what a page depends on and takes the digests anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["PAGES", "digest", "main", "marked", "measured", "renewed"]

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"
NO_FIGURES = ("README.md",)
_COUNTS = re.compile(r"(?!.*_pb2).*\.(py|toml|proto)")
_MARK = re.compile(
    r"<!-- measured at (\w+) on ((?:[\w./-]+ [0-9a-f]{12}(?:, )?)+) -->\n\n(?:\*\*Measured before changes to [^\n]*\n\n)?"
)


def digest(path: str, root: Path = ROOT, commit: str = "") -> str:
    """Return the digest of a file, or of a folder's code and settings, as they are in the tree or were at a commit."""
    if commit:
        command = ["git", "-C", str(root), "ls-tree", "-r", commit, "--", path]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        blobs = {name: what.split()[2] for what, _, name in (line.partition("\t") for line in listed)}
    else:
        found = [root / path] if (root / path).is_file() else sorted((root / path).rglob("*"))
        blobs = {each.relative_to(root).as_posix(): _blob(each) for each in found if each.is_file()}
    return _digest_of(f"{blob} {name}" for name, blob in sorted(blobs.items()) if _COUNTS.fullmatch(name))


def _blob(file: Path) -> str:
    """Return the name that git has for a file's content."""
    data = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _digest_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def measured(text: str) -> tuple[str, dict[str, str]]:
    """Return a page's commit and what it depends on, with digests; both empty where it does not say."""
    found = _MARK.search(text)
    if found is None:
        return "", {}
    return found[1], dict(each.split() for each in found[2].split(", "))


def marked(text: str, commit: str, digests: Mapping[str, str], root: Path = ROOT) -> str:
    """Return a page that says what it was measured on, and which of that has changed since."""
    title, _, rest = _MARK.sub("", text, count=1).partition("\n\n")
    named = ", ".join(f"{path} {value}" for path, value in digests.items())
    changed = [f"`{path}`" for path, value in digests.items() if digest(path, root) != value]
    said = f"**Measured before changes to {', '.join(changed)}: not run again.**\n\n" if changed else ""
    return f"{title}\n\n<!-- measured at {commit} on {named} -->\n\n{said}{rest}"


def renewed(text: str, root: Path = ROOT) -> str:
    """Return a page whose line is that of the tree; one that does not say what it depends on as it is."""
    commit, digests = measured(text)
    return marked(text, commit, digests, root) if commit else text


def main(words: Sequence[str]) -> int:
    """Mark one page, or renew all."""
    if words:
        name, commit, *paths = words
        page = PAGES / name
        digests = {path: digest(path, commit=commit) for path in paths or measured(page.read_text())[1]}
        page.write_text(marked(page.read_text(encoding="utf-8"), commit, digests), encoding="utf-8")
    changed = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page.name)
    print(json.dumps({"changed": changed}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
