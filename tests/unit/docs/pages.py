"""The documentation as tests read it: its pages, their headings as GitHub anchors them, and their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
LEFT_OUT = {".git", ".venv", "build", "dist", "node_modules", "runs", "shared"}
_FENCE = re.compile(r"^( *)(```+)(.*?)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?:(?!`).|(?!\1)`)+?\1")


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string (`python title="mine.py"`, `sh docker`) and its text."""

    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info else ""

    @property
    def title(self) -> str:
        """The file that the block is to be written to; empty where it says none."""
        found = re.search(r'title="([^"]+)"', self.info)
        return found[1] if found else ""

    @property
    def mark(self) -> str:
        """The bare word after the language; empty where there is none."""
        words = self.info.split()[1:]
        return words[0] if words and "=" not in words[0] else ""


def markdown_files() -> list[Path]:
    """Every Markdown file of the repository but those that are part of a task."""
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not LEFT_OUT.intersection(path.relative_to(ROOT).parts[:-1])
        and not path.is_relative_to(ROOT / "tests")
        and not path.is_relative_to(ROOT / "sandboxes" / "swe" / "packages")
        and not path.is_relative_to(ROOT / "sandboxes" / "swe" / "tasks")
    )


def blocks(path: Path) -> list[Block]:
    return [Block(match[3].strip(), match[4]) for match in _FENCE.finditer(path.read_text(encoding="utf-8"))]


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def links(path: Path) -> Iterator[str]:
    """Targets of the page's links and pictures, those in code spans left out."""
    for match in re.finditer(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", _CODE.sub("`code`", prose(path))):
        yield match[1]


def anchors(path: Path) -> set[str]:
    """The fragments that GitHub makes of the page's headings."""
    found: set[str] = set()
    for match in re.finditer(r"^#{1,6} +(.+?) *#*$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count, name = 0, slug
        while name in found:
            count += 1
            name = f"{slug}-{count}"
        found.add(name)
    return found


def sections(path: Path) -> set[int]:
    """The numbers of the page's numbered sections (`## 4. Where rollouts start`)."""
    return {int(number) for number in re.findall(r"^## (\d+)\. ", prose(path), re.MULTILINE)}
