"""`ale lineage`: the chain of runs behind a model, from its first to the one named, and whether their files still agree.

Reads run folders only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ale.errors import Diverged, RecordError
from ale.terminal import print_table, stdout
from ale.training import runs
from trainer import lineage
from trainer.lineage import Lineage

__all__ = ["chain", "lineage_command"]

_SHOWN_CHARS = 12
HEADS = ("run", "env", "began with", "steps", "experts", "model", "data", "files")


def lineage_command(run: str) -> None:
    """Print a line per run, oldest first. Raise `RecordError` for no run, `Diverged` where a file was changed since."""
    folder = runs.locate(run)
    links = list(chain(folder))
    if not links:
        raise RecordError(
            f"no lineage in {folder}: it is no run, or one of an older version of ale."
            f"{runs.others(folder.name)}"
        )
    print_table(
        HEADS,
        [_row(place, story, problem) for place, story, problem in reversed(links)],
        least=("data", "model"),
    )
    first = links[-1][1]
    if first.parent is not None:
        stdout().print(f"\nThe run before, {first.parent.run}, is gone.")
    changed = [f"{place}: {problem}" for place, _, problem in links if problem]
    if changed:
        raise Diverged(f"the lineage does not hold: {'; '.join(changed)}")


def chain(folder: Path) -> Iterator[tuple[Path, Lineage, str]]:
    """Yield each run's folder, its lineage and what is wrong with its files, youngest first."""
    child: Lineage | None = None
    story = lineage.read(folder)
    while story is not None:
        yield folder, story, _problem(folder, story, child)
        if story.parent is None:
            return
        folder, child = Path(story.parent.run), story
        story = lineage.read(folder)


def _problem(folder: Path, story: Lineage, child: Lineage | None) -> str:
    model = folder / lineage.MODEL
    if story.final_digest and (not model.is_dir() or lineage.digest_of(model) != story.final_digest):
        return "its model is not the one it ended with"
    if child is None or child.parent is None:
        return ""
    if story.final_digest != child.model_digest:
        return "the run after it began with another model"
    told = child.parent.lineage_digest
    return "" if told == lineage.digest_of(folder / lineage.FILE) else f"its {lineage.FILE} was changed"


def _row(folder: Path, story: Lineage, problem: str) -> tuple[str, ...]:
    faulty = sum(expert.faulty_turns for expert in story.experts)
    held_out = sum(expert.held_out for expert in story.experts)
    notes = [f"{held_out} held out"] * bool(held_out) + [f"{faulty} turns masked"] * bool(faulty)
    return (
        str(folder),
        story.env,
        story.parent.run if story.parent else story.model,
        str(story.steps) if story.final_digest else "(not ended)",
        f"{len(story.experts)}{' (' + ', '.join(notes) + ')' if notes else ''}",
        story.final_digest[:_SHOWN_CHARS],
        story.experts_digest[:_SHOWN_CHARS],
        problem or "as recorded",
    )
