"""What a box leaves on the disk goes, whatever it made of it."""

from __future__ import annotations

import os
from pathlib import Path

from rock_env.backends.process.layers import remove_tree


def dig(folder: Path, depth: int) -> None:
    """Make folders in folders, far beyond what a path can name."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=at))
    os.close(at)


def test_folders_far_deeper_than_a_path_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    dig(folder, 5000)
    (folder / "link").symlink_to(tmp_path)
    (folder / "out").mkdir()
    (folder / "out" / "link").symlink_to("/")
    (tmp_path / "kept").write_text("mine")
    remove_tree(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_folders_without_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "box"
    (folder / "a" / "b").mkdir(parents=True)
    dig(folder / "a" / "b", 1200)
    for path in (folder / "a" / "b", folder / "a", folder):
        path.chmod(0)
    remove_tree(folder)
    assert list(tmp_path.iterdir()) == []
    remove_tree(folder)
