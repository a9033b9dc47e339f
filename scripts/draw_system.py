"""Draw the picture of the system: `python scripts/draw_system.py [--check]` writes `docs/system.svg`.

`--check` writes nothing and fails if the committed picture differs. Standard library alone.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "system.svg"
WIDTH, HEIGHT = 1000, 636
INK, GREY = "#1f2937", "#6b7280"


@dataclass(frozen=True)
class Box:
    """A rectangle with a title and lines of text; `frame` draws the room of a package, titled at its top."""

    x: int
    y: int
    w: int
    h: int
    title: str
    lines: tuple[str, ...] = ()
    fill: str = "#ffffff"
    frame: bool = False


@dataclass(frozen=True)
class Arrow:
    """A line through points, with a head at its end (and its start, if `both`), a label at (x, y) and one below the line."""

    points: tuple[tuple[int, int], ...]
    label: str
    x: int
    y: int
    both: bool = False
    below: str = ""


BOXES = (
    Box(
        20, 20, 960, 64, "ale", ("command line and Python: train, eval, env, agent, rock, replay",), "#eef2ff"
    ),
    Box(20, 116, 440, 374, "trainer (on Ray)", (), "#ecfdf5", frame=True),
    Box(530, 116, 190, 374, "agent_runtime", (), "#fff7ed", frame=True),
    Box(800, 116, 180, 374, "rock_env (ROCK)", (), "#fef2f2", frame=True),
    Box(36, 156, 160, 72, "training loop", ("algorithm: IPA, GRPO,", "PPO and others")),
    Box(36, 282, 160, 72, "anchor pool", ("experts: turns at which", "rollouts may start")),
    Box(36, 402, 160, 72, "train engine", ("learns, publishes", "new weights")),
    Box(284, 156, 160, 72, "rollout workers", ("play groups: one task", "from one start")),
    Box(284, 282, 160, 72, "inference engines", ("sample the policy's", "tokens")),
    Box(284, 402, 160, 72, "reward workers", ("optional: a judge,", "a rule, a sandbox")),
    Box(
        546,
        156,
        158,
        198,
        "agent",
        ("a chat loop of ours,", "or a CLI agent of", "others behind the", "gateway"),
    ),
    Box(546, 402, 158, 72, "trajectory", ("turns, with every token", "that was sampled")),
    Box(816, 156, 148, 112, "server", ("environments and", "sandboxes by gRPC,", "REST and E2B")),
    Box(816, 332, 148, 142, "places to run", ("worker processes", "process sandboxes", "Docker containers")),
    Box(
        20,
        532,
        440,
        84,
        "run folder",
        ("metrics, trajectories,", "checkpoints, the trained model"),
        "#f3f4f6",
    ),
    Box(
        530,
        532,
        450,
        84,
        "environments",
        ("sandboxes/ (built in), your Dockerfile and grader,", "your Python package"),
        "#f3f4f6",
    ),
)

ARROWS = (
    Arrow(((240, 84), (240, 110)), "settings", 276, 102),
    Arrow(((196, 192), (278, 192)), "requests", 237, 185),
    Arrow(((116, 282), (116, 234)), "starts", 142, 262),
    Arrow(((444, 192), (540, 192)), "task, start", 492, 185),
    Arrow(((450, 318), (540, 318)), "prompts", 495, 311, both=True, below="tokens"),
    Arrow(((710, 212), (810, 212)), "actions", 760, 205, both=True, below="observations"),
    Arrow(((625, 354), (625, 396)), "", 0, 0),
    Arrow(((546, 438), (450, 438)), "trajectories", 492, 431),
    Arrow(((284, 450), (202, 450)), "trajectories", 240, 470),
    Arrow(((196, 424), (240, 424), (240, 318), (278, 318)), "weights", 217, 380),
    Arrow(((890, 268), (890, 326)), "", 0, 0),
    Arrow(((890, 532), (890, 480)), "", 0, 0),
    Arrow(((240, 490), (240, 526)), "", 0, 0),
)


def box(it: Box) -> str:
    """Return one rectangle with its text."""
    middle, radius = it.x + it.w / 2, 10 if it.frame else 6
    top = it.y + 24 if it.frame else it.y + it.h / 2 - 9 * len(it.lines) + 5
    parts = [
        f'<rect x="{it.x}" y="{it.y}" width="{it.w}" height="{it.h}" rx="{radius}" fill="{it.fill}" stroke="{GREY}"/>',
        f'<text x="{middle:g}" y="{top:g}" font-weight="bold">{escape(it.title)}</text>',
    ]
    parts += [
        f'<text x="{middle:g}" y="{top + 18 * (i + 1):g}" font-size="13">{escape(line)}</text>'
        for i, line in enumerate(it.lines)
    ]
    return "\n".join(parts)


def arrow(it: Arrow) -> str:
    """Return one line with its heads and label."""
    path = " ".join(f"{x},{y}" for x, y in it.points)
    start = ' marker-start="url(#head)"' if it.both else ""
    line = f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.5"{start} marker-end="url(#head)"/>'
    labels = ((it.label, it.y), (it.below, it.y + 24))
    return line + "".join(
        f'\n<text x="{it.x}" y="{y}" font-size="12" fill="{GREY}">{escape(text)}</text>'
        for text, y in labels
        if text
    )


def picture() -> str:
    """Return the picture as text."""
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif" font-size="15" fill="{INK}" '
            'text-anchor="middle">',
            "<title>The parts of ALE and what passes between them</title>",
            f"<defs>{head}</defs>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *map(box, BOXES),
            *map(arrow, ARROWS),
            "</svg>\n",
        ]
    )


def main() -> int:
    """Draw, or compare with what is committed."""
    parser = argparse.ArgumentParser(description="Draw the picture of the system.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    drawn = picture()
    if not parser.parse_args().check:
        PICTURE.write_text(drawn, encoding="utf-8")
        return 0
    if PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == drawn:
        return 0
    sys.stderr.write("docs/system.svg is stale: run `make docs` and commit.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
