"""Ring buffers and sliding windows."""

from ring.buffer import RingBuffer
from ring.tools import chunks, last_items, rotate
from ring.window import Window

__all__ = ["RingBuffer", "Window", "chunks", "last_items", "rotate"]
