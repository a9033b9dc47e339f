"""MiniWoB++: the pages of the PyPI package `miniwob`, of which only the HTML is used, and which of them are tasks here.

Left out are pages that need another site's data (`flight`), and those whose page goes on by itself in real time.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rock_env.errors import InvalidArgument

__all__ = ["NAMES", "PREFIX", "folder", "page_files"]

PREFIX = "miniwob:"
"""Before the name in a task's payload."""
_PAGES = """
    ascending-numbers bisect-angle button-delay buy-ticket choose-date choose-date-easy choose-date-medium
    choose-date-nodelay choose-list circle-center click-button click-button-sequence click-checkboxes
    click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer click-collapsible
    click-collapsible-2 click-collapsible-2-nodelay click-collapsible-nodelay click-color click-dialog
    click-dialog-2 click-link click-menu click-menu-2 click-option click-pie click-pie-nodelay
    click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-easy click-tab-2-hard
    click-tab-2-medium click-test click-test-2 click-test-transfer click-widget copy-paste copy-paste-2
    count-shape count-sides daily-calendar drag-box drag-circle drag-cube drag-items drag-items-grid
    drag-shapes drag-shapes-2 drag-single-shape drag-sort-numbers draw-circle draw-line email-inbox
    email-inbox-delete email-inbox-forward email-inbox-forward-nl email-inbox-forward-nl-turk
    email-inbox-important email-inbox-nl-turk email-inbox-noscroll email-inbox-reply email-inbox-star-reply
    enter-date enter-password enter-text enter-text-2 enter-text-dynamic enter-time find-greatest
    find-midpoint find-word focus-text focus-text-2 form-sequence form-sequence-2 form-sequence-3
    generate-number grid-coordinate guess-number highlight-text highlight-text-2 hover-shape identify-shape
    login-user login-user-popup multi-layouts multi-orderings navigate-tree number-checkboxes odd-or-even
    order-food phone-book read-table read-table-2 resize-textarea right-angle scroll-text scroll-text-2
    search-engine sign-agreement simple-algebra simple-arithmetic social-media social-media-all
    social-media-some terminal text-editor text-transform tic-tac-toe unicode-test use-autocomplete
    use-autocomplete-nodelay use-colorwheel use-colorwheel-2 use-slider use-slider-2 use-spinner
    visual-addition
"""
NAMES: tuple[str, ...] = tuple(_PAGES.split())
"""The tasks, named as their pages."""
_GET_IT = "Install it where the server runs: pip install --no-deps miniwob"


def folder() -> Path | None:
    """Return where the package's HTML lies, or None where it is not installed. Nothing of it is imported."""
    found = find_spec("miniwob")
    places = found.submodule_search_locations if found is not None else None
    return Path(next(iter(places))) / "html" if places else None


@cache
def _shared(root: Path) -> dict[str, bytes]:
    return {
        f"static/{path.relative_to(root)}": path.read_bytes()
        for part in ("core", "common")
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def page_files(name: str) -> dict[str, bytes]:
    """Return what the static server needs for one task. Raise `InvalidArgument` where the package is not installed."""
    root = folder()
    if root is None:
        raise InvalidArgument(f"the tasks of MiniWoB++ need the package miniwob. {_GET_IT}")
    page = root / "miniwob" / f"{name}.html"
    return {**_shared(root), f"static/miniwob/{name}.html": page.read_bytes()}
