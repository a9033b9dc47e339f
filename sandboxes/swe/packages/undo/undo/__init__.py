"""Undo and redo."""

from undo.editor import Editor
from undo.stack import History

__all__ = ["Editor", "History"]
