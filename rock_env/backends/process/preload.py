"""A zygote whose interpreter has modules imported that programs of its boxes find there (`SandboxSpec.preload`).

Begun by the zygote (`enter`) once its file system stands: it starts anew as the Python of a box, inside the box's
read-only parts, so that modules have the paths, settings and search path they would have in a box; imports (`warm_start`);
leaves those parts and goes on as a zygote (`begin`). In each box that it becomes, a second process stays without the guest's
part and is `guest.warm`. What may be imported is what the operator installed for boxes: see `box_config.preloaded`.
"""

from __future__ import annotations

import gc
import marshal
import os
import socket
import sys

from rock_env.backends.process import fence, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rock_env.backends.process.zygote import Zygote
    from rock_env.guest.warm.interpreter import Program

__all__ = ["begin", "enter"]

_CODE = fence.CODE.removeprefix(fence.SKELETON)
_PROGRAM = f"{_CODE}/rock_env/backends/process/warm_start.py"
_PLAN_FD, _ROOT_FD, _CONTROL_FD = 201, 202, 203  # the first one's number is also in `warm_start`


def enter(order: dict[str, Any], control: socket.socket, *, overlay: bool) -> None:
    """Start anew as the Python of a box. Returns never."""
    plan = os.memfd_create("plan")
    os.write(plan, marshal.dumps({**order, "overlay": overlay}, 2))
    os.lseek(plan, 0, os.SEEK_SET)
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    for fd, number in ((plan, _PLAN_FD), (root, _ROOT_FD), (control.fileno(), _CONTROL_FD)):
        os.dup2(fd, number)
    control.set_inheritable(False)
    os.chroot(fence.SKELETON)
    os.chdir("/")
    os.execve(order["python"], [order["python"], _PROGRAM], order["start_up"])


def begin(plan: dict[str, Any], missing: list[str], before: tuple[set[str], list[str], set[str]]) -> Program:
    """Be a zygote; return in a process of a box that is to run a program."""
    from rock_env.backends.process.zygote import Zygote
    from rock_env.guest.warm.interpreter import Warm

    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    os.umask(0o022)
    sys.path.remove(_CODE)
    os.fchdir(_ROOT_FD)
    os.chroot(".")
    os.close(_ROOT_FD)
    fence.forget_code()
    os.set_inheritable(_CONTROL_FD, False)
    zygote: Zygote = Zygote(socket.socket(fileno=_CONTROL_FD))
    zygote.plan = plan
    zygote.warm = Warm(*before)
    gc.collect()
    gc.freeze()
    zygote.tell("ready", plan["request"], (plan["overlay"], missing))
    zygote.run()
    if zygote.become is None:
        os._exit(0)
    return zygote.become()
