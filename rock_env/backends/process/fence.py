"""What a process sandbox sees of this machine, and how a process is put there and gives up everything else.

A process with one thread does `prepare` once, then `enclose` and `renounce` in each process that becomes a box.
Starts nothing and never looks at what the box will run. All mounts are made in mount namespaces of the zygote and of
the boxes, so they end with them.

As root, boxes get a host uid of their own (so that file ownership and limits are theirs alone) and a user namespace
in which that uid is BOX_UID. As anyone else, the zygote first enters a user namespace, in which the same can be done
with the one uid there is.
"""

# pathlib would cost more than a box's start.
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH115, PTH120, PTH211
from __future__ import annotations

import fcntl
import os
import socket
import struct

from rock_env.backends.process import kernel, trees

TYPE_CHECKING = False  # importing `typing` costs 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "BOX_UID",
    "CODE",
    "FILES",
    "LAYER_PARTS",
    "enclose",
    "enter_root",
    "enter_user_namespace",
    "lay_devices",
    "lay_read_only",
    "lay_system",
    "leave_host",
    "prepare",
    "renounce",
]

BOX_UID = 1000
BOX = "/box"
"""Where a box's root is put together, seen from the zygote."""
SKELETON = "/skeleton"
"""The parts of every box's root, made once."""
CODE = f"{SKELETON}/tmp"
"""Where a zygote that preloads finds our own code while it begins; boxes get a folder of their own in that place."""
FILES = "/.files"
"""The box's own files as they lie in its memory file system: closed to a box's user where the server is root."""
LAYER_PARTS = ("work", "home", "tmp")
"""The folders of a box that are its own: working folder, home, /tmp."""
HOME = "/home/agent"
OVERLAY_OPTIONS = "index=off,metacopy=off,redirect_dir=nofollow,xino=off"
_SHM_BYTES = 64 << 20
_BYTES_PER_INODE = 4096
_LEAST_INODES = 1024
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_MASKED = ("kcore", "keys", "key-users", "latency_stats", "sysrq-trigger", "timer_list")
"""Files of /proc that tell of the whole machine or steer it, and that no program of a box needs."""
_LOCKED = kernel.NOSUID | kernel.NODEV
_READ_ONLY = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV


def enter_user_namespace() -> None:
    """Become root of a fresh user namespace in which our own user is all there is."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEWUSER)
    _map_ids(0, uid, gid)


def prepare(plan: dict[str, Any]) -> bool:
    """Put the zygote into a file system of its own that holds the parts of a box; return whether overlays work there."""
    kernel.unshare(kernel.NEWNS)
    kernel.mount("", "/", flags=kernel.REC | kernel.PRIVATE)
    top = plan["mount_point"]
    kernel.mount("base", top, "tmpfs", _LOCKED, "mode=0755,size=1m")
    for folder in (BOX, SKELETON, f"{SKELETON}/proc", f"{SKELETON}/tmp", SKELETON + HOME, "/proc", "/old"):
        os.makedirs(top + folder, 0o755)
    lay_system(top + SKELETON, plan)
    lay_devices(top + SKELETON)
    kernel.mount("/proc", f"{top}/proc", flags=kernel.BIND | kernel.REC)
    for folder in plan["shared"]:  # the same paths mean the same here as for the server
        os.makedirs(top + folder, 0o755, exist_ok=True)
        kernel.mount(folder, top + folder, flags=kernel.BIND | kernel.REC)
    if plan["code"]:
        kernel.mount(plan["code"], top + CODE, flags=kernel.BIND | kernel.REC)
    kernel.umount(top + top)  # it lies in a shared folder, and came along
    kernel.pivot_root(top, f"{top}/old")
    os.chdir("/")
    kernel.umount("/old")
    works = _overlay_works(user=plan["user"])
    # Boxes bind parts of this; where their user is ours, nothing else keeps one from writing into another's.
    kernel.mount("", "/", flags=kernel.BIND | kernel.REMOUNT | kernel.RDONLY | _LOCKED)
    return works


def forget_code() -> None:
    """Take our own code out of sight, before the first box."""
    kernel.umount(CODE)


def lay_system(skeleton: str, plan: dict[str, Any]) -> None:
    """Bind the read-only parts, each at its place below `skeleton`, and cover what is not to be seen."""
    for target, link in plan["links"]:
        os.symlink(target, skeleton + link)
    for host, inside in plan["binds"]:
        lay_read_only(host, skeleton + inside)
    for folder in plan["hidden"]:
        kernel.mount("hidden", skeleton + folder, "tmpfs", _LOCKED | kernel.RDONLY, "mode=0755,size=4k")


def lay_read_only(host: str, point: str, owners: int = -1) -> None:
    """Bind a folder or file at `point`; with a user namespace (a descriptor) who owns it is read as there, if that works."""
    if os.path.isdir(host):
        os.makedirs(point, 0o755, exist_ok=True)
    elif not os.path.exists(point):  # a file; below a bound folder its place exists
        os.makedirs(os.path.dirname(point), 0o755, exist_ok=True)
        os.close(os.open(point, os.O_CREAT | os.O_WRONLY, 0o644))
    if owners >= 0:
        try:
            kernel.bind_as_owner(host, point, _READ_ONLY, owners)
        except OSError:  # the file system does not offer it: what all may read can be read
            pass
        else:
            return
    kernel.mount(host, point, flags=kernel.BIND | kernel.REC)
    kernel.mount_attributes(point, _READ_ONLY, recursive=True)


def lay_devices(skeleton: str) -> None:
    """Give /dev below `skeleton` what every program may use."""
    dev = f"{skeleton}/dev"
    os.makedirs(dev, 0o755)
    kernel.mount("dev", dev, "tmpfs", kernel.NOSUID, "mode=0755,size=64k")
    for name in _DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.mount(f"/dev/{name}", f"{dev}/{name}", flags=kernel.BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}", 0o755)
    links = (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("core", "/proc/kcore"))
    standard = ((name, f"/proc/self/fd/{fd}") for fd, name in enumerate(("stdin", "stdout", "stderr")))
    for name, target in (*links, *standard):
        os.symlink(target, f"{dev}/{name}")
    kernel.mount("", dev, flags=kernel.BIND | kernel.REMOUNT | kernel.RDONLY | kernel.NOSUID)


def _overlay_works(*, user: bool) -> bool:
    kernel.mount("probe", BOX, "tmpfs", _LOCKED, "mode=0755,size=64k")
    try:
        for name in ("lower", "upper", "scratch", "all"):
            os.mkdir(f"{BOX}/{name}")
        options = (
            f"lowerdir={BOX}/lower,upperdir={BOX}/upper,workdir={BOX}/scratch,{_overlay_options(user=user)}"
        )
        kernel.mount("overlay", f"{BOX}/all", "overlay", _LOCKED, options)
    except OSError:
        return False
    finally:
        kernel.umount(BOX)
    return True


def _overlay_options(*, user: bool) -> str:
    # Without privileges redirect_dir cannot be chosen; it is never followed there.
    return "userxattr,index=off,metacopy=off,xino=off" if user else OVERLAY_OPTIONS


def enclose(order: dict[str, Any]) -> None:
    """Move this process, pid 1 of its namespace, into namespaces and a file system of the box's own."""
    leave_host()
    size = order["limits"]["disk_bytes"]
    inodes = max(_LEAST_INODES, size // _BYTES_PER_INODE)
    kernel.mount("files", BOX, "tmpfs", _LOCKED, f"mode=0755,size={size},nr_inodes={inodes}")
    _own_files(order)
    for entry in os.scandir(SKELETON):
        inside = f"{BOX}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), inside)
            continue
        os.mkdir(inside, 0o755)
        if entry.name not in ("proc", "tmp"):
            kernel.mount(entry.path, inside, flags=kernel.BIND | kernel.REC)
    _kernel_files()
    os.makedirs(BOX + order["workdir"], 0o755, exist_ok=True)
    files = f"{BOX}{FILES}/{'all' if order['lowers'] else 'upper'}"
    for part, inside in zip(LAYER_PARTS, (order["workdir"], HOME, "/tmp"), strict=True):
        kernel.mount(f"{files}/{part}", BOX + inside, flags=kernel.BIND)
    enter_root(BOX, order["workdir"])


def leave_host() -> None:
    """Leave the host's mounts, network, ipc, names and control groups for namespaces of one's own."""
    kernel.unshare(kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP)
    socket.sethostname("sandbox")
    _raise_loopback()


def enter_root(folder: str, workdir: str) -> None:
    """Make a mounted `folder`, from now on read-only, the root of all files, and go to `workdir` there."""
    kernel.mount("", folder, flags=kernel.BIND | kernel.REMOUNT | kernel.RDONLY | _LOCKED)
    os.chdir(folder)
    kernel.pivot_root(".", ".")
    kernel.umount(".")
    os.chdir(workdir)


def _own_files(order: dict[str, Any]) -> None:
    """Make the box's writable folders, over the layers it starts from."""
    os.mkdir(BOX + FILES, 0o700)
    files = f"{BOX}{FILES}/upper"
    os.mkdir(files, 0o755)
    if order["lowers"]:
        for name in ("scratch", "all"):
            os.mkdir(f"{BOX}{FILES}/{name}", 0o700)
        os.chdir(order["layers"])  # short relative names: the options of a mount have to fit a page
        options = f"lowerdir={':'.join(order['lowers'])},upperdir={files},workdir={BOX}{FILES}/scratch"
        files = f"{BOX}{FILES}/all"
        kernel.mount(
            "overlay", files, "overlay", _LOCKED, f"{options},{_overlay_options(user=order['user'])}"
        )
        os.chdir("/")
    elif order["copied"]:
        trees.copy_folder(order["copied"], files)
    for part in LAYER_PARTS:
        if not os.path.isdir(f"{files}/{part}"):
            os.mkdir(f"{files}/{part}", 0o755)
            os.chown(f"{files}/{part}", order["identity"], order["identity"])


def _kernel_files() -> None:
    kernel.mount("proc", f"{BOX}/proc", "proc", _LOCKED | kernel.NOEXEC)
    for name in _MASKED:
        if os.path.exists(f"{BOX}/proc/{name}"):
            kernel.mount(f"{SKELETON}/dev/null", f"{BOX}/proc/{name}", flags=kernel.BIND)
    kernel.mount(
        "devpts",
        f"{BOX}/dev/pts",
        "devpts",
        kernel.NOSUID | kernel.NOEXEC,
        "newinstance,ptmxmode=0666,mode=0620",
    )
    kernel.mount("shm", f"{BOX}/dev/shm", "tmpfs", _LOCKED, f"mode=1777,size={_SHM_BYTES}")


def _raise_loopback() -> None:
    """Switch on the one network device there is, so that a box's programs can talk to each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh22x", b"lo", 0x1)  # linux/if.h: struct ifreq, IFF_UP
        fcntl.ioctl(sock, 0x8914, request)  # SIOCSIFFLAGS


def renounce(identity: int, program: bytes, *, user: bool, own: int | None = None) -> None:
    """Become the box's user, without any privilege over anything, for ever, and filtered by `program`.

    `own` is a descriptor of this process's folder of /proc, where that is out of sight.
    """
    if not user:
        os.setgroups([])
        os.setresgid(identity, identity, identity)
        os.setresuid(identity, identity, identity)
    kernel.unshare(kernel.NEWUSER)
    kernel.prctl(
        kernel.PR_SET_DUMPABLE, 1
    )  # else our own maps are not ours to write; nobody else is here yet
    _map_ids(BOX_UID, identity, identity, own)
    kernel.drop_capabilities()
    kernel.install_filter(program)


def _map_ids(inside: int, uid: int, gid: int, own: int | None = None) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {uid} 1"),
        ("gid_map", f"{inside} {gid} 1"),
    ):
        file = os.open(f"/proc/self/{name}" if own is None else name, os.O_WRONLY, dir_fd=own)
        os.write(file, text.encode())
        os.close(file)
