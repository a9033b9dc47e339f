"""A zygote whose interpreter has modules imported that programs of its boxes find there (`SandboxSpec.preload`).

Begun by the zygote (`enter`) once its file system stands: it starts anew as the Python of a box, inside the box's
read-only parts, so that modules have the paths, settings and search path they would have in a box; imports (`warm_start`);
leaves those parts and goes on as a zygote (`zygote.begin`). In each box that it becomes, a second process stays without the
guest's part and is `guest.warm`. What may be imported is what the operator installed for boxes: see `box_config.preloaded`.
"""

from __future__ import annotations

import marshal
import os
import socket

from rock_env.backends.process import fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CODE", "CONTROL_FD", "ROOT_FD", "enter"]

CODE = fence.CODE.removeprefix(fence.SKELETON)
_PROGRAM = f"{CODE}/rock_env/backends/process/warm_start.py"
_PLAN_FD, ROOT_FD, CONTROL_FD = 201, 202, 203  # the first one's number is also in `warm_start`


def enter(order: dict[str, Any], control: socket.socket, *, overlay: bool) -> None:
    """Start anew as the Python of a box. Returns never."""
    plan = os.memfd_create("plan")
    os.write(plan, marshal.dumps({**order, "overlay": overlay}, 2))
    os.lseek(plan, 0, os.SEEK_SET)
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    for fd, number in ((plan, _PLAN_FD), (root, ROOT_FD), (control.fileno(), CONTROL_FD)):
        os.dup2(fd, number)
    control.set_inheritable(False)
    os.chroot(fence.SKELETON)
    os.chdir("/")
    os.execve(order["python"], [order["python"], _PROGRAM], order["start_up"])
