"""`ale console RUN --bundle FILE.html`: a run's curves and chosen rollouts in one file that opens without a server.

It holds the console's own page and what the console would answer, of a copy without what has the form of a secret
(`ale.replay.interchange.redaction`). The page's modules are `data:` addresses; its policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_runtime.store import read_at, write_segment
from ale.console import rollouts
from ale.console.app import FILES, about
from ale.console.catalog import place_of
from ale.console.run import WatchedRun
from ale.errors import RecordError
from ale.replay.interchange.redaction import redacted, redacted_rollout
from ale.replay.listing import Wanted
from ale.replay.rows import Outcomes, Row
from ale.training import runs
from ale.training.reading import METRICS
from rock_env.foreign.folder import read_inside
from rock_env.store.whole_file import write_whole

__all__ = ["write_bundle"]

MOST_ROLLOUTS = 500
MOST_BYTES = 64 << 20
"""Of the file, and of a run's metrics: a browser reads it at once."""
MOST_TEXT = 200_000
_PATTERNS = ("task", "group", "file", "text", "env")
_OUTCOMES = ("passed", "unsolved", "errored", "ungraded")
_IMPORT = re.compile(r'(?<=from )"\./([a-z]+\.js)"')


def write_bundle(name: str, out: Path, chosen_by: Sequence[str]) -> tuple[int, int]:
    """Write the file; return how many rollouts it holds and how many of them had a secret. Raise `RecordError`.

    `chosen_by`: ids, or `KEY=VALUE` (`_PATTERNS`, `step`, `outcome`), which all must fit; empty: all.
    """
    ids, wanted = _wanted(chosen_by)
    folder = runs.locate(name)
    if not folder.is_dir():
        raise RecordError(f"no run in {folder}: got no folder of that name.{runs.others(name)}")
    if out.exists():
        raise RecordError(f"{out} is there already: expected a new file. Choose another --bundle.")
    rows = WatchedRun(folder).rows(patience_s=float("inf"))
    if missing := ids - {row.id for _, row in rows.all}:
        raise RecordError(
            f"{folder} has no rollout {sorted(missing)[0]!r}: expected an id that `ale replay list {name}` shows."
        )
    chosen = [(path, row) for path, row in rows.all if (not ids or row.id in ids) and wanted.fits(path, row)]
    if not chosen and chosen_by:
        raise RecordError(
            f"no rollout of {folder} fits --rollouts {' '.join(chosen_by)}: got {len(rows.all)} others."
        )
    if len(chosen) > MOST_ROLLOUTS:
        raise RecordError(
            f"a bundle holds at most {MOST_ROLLOUTS} rollouts: got {len(chosen)} of {len(rows.all)}. Choose fewer by "
            "--rollouts, such as --rollouts 'task=train/7*' or --rollouts step=40."
        )
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.name
        secrets = _copied(folder, copy, chosen)
        page = _page(_answers(WatchedRun(copy), place_of(folder.absolute())))
    if len(page) > MOST_BYTES:
        raise RecordError(
            f"the bundle would have {len(page) / 1e6:.0f} MB: expected at most {MOST_BYTES / 1e6:.0f}. Choose fewer "
            "rollouts by --rollouts."
        )
    write_whole(out, lambda path: path.write_bytes(page))
    return len(chosen), secrets


def _wanted(chosen_by: Sequence[str]) -> tuple[set[str], Wanted]:
    ids, told = set(), dict[str, Any]()
    for word in chosen_by:
        key, equals, value = word.partition("=")
        if not equals:
            ids.add(word)
        elif key == "outcome" and value in _OUTCOMES:
            told["outcomes"] = Outcomes(**{value: True})
        elif key == "step" and value.isascii() and value.isdigit():
            told["step"] = int(value)
        elif key in _PATTERNS:
            told[key] = value
        else:
            raise RecordError(
                f"--rollouts takes an id or KEY=VALUE: got {word!r}, expected one of {', '.join(_PATTERNS)}=PATTERN, step=N "
                f"or outcome={'|'.join(_OUTCOMES)}."
            )
    return ids, Wanted(**told)


def _copied(folder: Path, copy: Path, chosen: Sequence[tuple[Path, Row]]) -> int:
    """Copy settings, metrics and rollouts without secrets; return how many rollouts had one."""
    copy.mkdir()
    for name in (runs.CONFIG, METRICS):
        if (folder / name).is_file():
            text = read_inside(folder, folder / name).decode(errors="replace")
            (copy / name).write_text(redacted(text), encoding="utf-8")
    of_file: dict[Path, list[Row]] = defaultdict(list)
    for path, row in chosen:
        of_file[path].append(row)
    secrets = 0
    for path, rows in of_file.items():
        clean = [redacted_rollout(read_at(path, row.offset)) for row in rows]
        secrets += sum(had for _, had in clean)
        there = copy / path.relative_to(folder)
        there.parent.mkdir(exist_ok=True)
        write_segment(there, [rollout for rollout, _ in clean])
    return secrets


def _answers(run: WatchedRun, place: str) -> dict[str, Any]:
    """Return what the page asks of the run at a place, by what it asks."""
    rows = run.rows(patience_s=float("inf"))
    names = {name for each in run.metrics((), 2)["names"].values() for name in each}
    told = {"folder": "", "doing": "", "state": "bundle"}
    return {
        "run": {**about(place, run), **told},
        "metrics": run.metrics(sorted(names), 1000),
        "grid": rollouts.grid(rows),
        "rows": rollouts.window(rows, Wanted(), sort="", start=0, limit=MOST_ROLLOUTS)["rows"],
        "rollouts": [
            {
                **rollouts.one(rows, at, run.folder, start=0, limit=1 << 30, whole=None, most_text=MOST_TEXT),
                "goes_on": "",
            }
            for at in range(len(rows.all))
        ],
    }


def _page(answers: Mapping[str, Any]) -> bytes:
    modules = {
        name: _IMPORT.sub(r'"\1"', FILES[name].decode()) for name in sorted(FILES) if name.endswith(".js")
    }
    addresses = {name: f"data:text/javascript;base64,{_base64(text)}" for name, text in modules.items()}
    imports, start = json.dumps({"imports": addresses}), 'import "app.js";'
    style = FILES["style.css"].decode()
    scripts = " ".join(f"'sha256-{_digest(text)}'" for text in (imports, start))
    policy = (
        f"default-src 'none'; script-src {scripts} data:; style-src 'sha256-{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # Within a script nothing but `<` could end it.
    kept = json.dumps(answers, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    body = FILES["index.html"].decode().partition("<body>")[2]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="content-security-policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>ale console</title>\n'
        f'<style>{style}</style>\n<script type="importmap">{imports}</script>\n'
        f'<script type="application/json" id="kept">{kept}</script>\n'
        f'<script type="module">{start}</script>\n</head>\n<body>{body}'
    ).encode()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
