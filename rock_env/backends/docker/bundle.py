"""The guest as any image can run it: a folder with this interpreter, its standard library and its loader.

Built once per folder, used by the `docker` backend, which binds it read-only to `/opt/rock` in each box. It needs
nothing of the image: no shell, no C library. It holds nothing of this machine but the interpreter's own files.
"""

from __future__ import annotations

import ast
import hashlib
import json
import marshal
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

import rock_env.guest
from rock_env.errors import InfraError
from rock_env.guest_host.code import GUARD_SOURCES, START_SOURCE, lay_out_guest

__all__ = ["BOX_RUN", "BOX_TOOLS", "GUEST_ARGV", "Bundle"]

BOX_TOOLS = "/opt/rock"
BOX_RUN = f"{BOX_TOOLS}/run"
"""Where a box's own folder is bound, writable: the guest makes its socket there."""
GUEST_ARGV = (
    f"{BOX_TOOLS}/ld.so",
    "--library-path",
    f"{BOX_TOOLS}/lib",
    f"{BOX_TOOLS}/bin/python",
    "-I",
    "-S",
    f"{BOX_TOOLS}/start.pyc",
)
"""The command line, in a box, of the guest without its arguments."""
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = {
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "__pycache__",
}
"""Folders of the standard library that a guest never needs; installed packages may hold hidden tests."""
_PT_INTERP = 3  # elf.h
_HOSTS = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A finished folder."""

    folder: Path

    @property
    def argv(self) -> list[str]:
        """Return the command line, in a box, of the guest without its arguments."""
        return list(GUEST_ARGV)

    @property
    def binds(self) -> list[str]:
        """Return what each box gets of this folder, as Docker's `source:target:ro`."""
        names = {"": BOX_TOOLS, "/etc/hosts": "/etc/hosts", "/etc/hostname": "/etc/hostname"}
        return [f"{self.folder}{name}:{target}:ro" for name, target in names.items()]

    @classmethod
    def build(cls, parent: Path) -> Bundle:
        """Make the folder below `parent`, or find the one made there from the same interpreter and guest.

        Raise `InfraError` where this interpreter is not a dynamically linked one on Linux.
        """
        done = parent / f"guest-{_digest()}"
        if done.is_dir():
            return cls(done)
        parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".guest-", dir=parent))
        try:
            part.chmod(0o755)
            _fill(part)
            part.rename(done)
        except OSError:
            if not done.is_dir():  # else another server was faster
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return cls(done)


def _digest() -> str:
    source = b"".join(file.read_bytes() for file in (*_sources(), START_SOURCE, *GUARD_SOURCES))
    return hashlib.sha256(source + sys.version.encode() + sys.base_prefix.encode()).hexdigest()[:12]


def _sources() -> list[Path]:
    return sorted(Path(rock_env.guest.__file__).parent.glob("*.py"))


def _fill(folder: Path) -> None:
    executable = Path(sys.executable).resolve()
    loader = _loader(executable)
    for name in ("bin", "etc", "lib", "run"):
        (folder / name).mkdir()
    shutil.copy(loader, folder / "ld.so")
    shutil.copy(executable, folder / "bin" / "python")
    (folder / "etc" / "hosts").write_text(_HOSTS)
    (folder / "etc" / "hostname").write_text("sandbox\n")
    lay_out_guest(folder)
    (folder / "guard").mkdir()
    for source in GUARD_SOURCES:
        shutil.copy(source, folder / "guard")
    library = folder / "lib" / _PYTHON
    _copy_library(Path(sysconfig.get_path("stdlib")), library)
    extensions = _extensions({path.stem for path in (folder / "guest").iterdir()})
    (library / "lib-dynload").mkdir()
    for extension in extensions:
        shutil.copy(extension, library / "lib-dynload")
    for needed in _libraries(loader, [executable, *extensions]):
        shutil.copy(needed, folder / "lib")


def _copy_library(source: Path, target: Path) -> None:
    """Copy the modules compiled, without their sources: they start faster and take a third of the space."""
    target.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name in _LEFT_OUT or entry.name.startswith(("config-", "lib-dynload")):
            continue
        if entry.is_dir():
            _copy_library(entry, target / entry.name)
        elif entry.suffix == ".py":
            _compile(entry, target / f"{entry.stem}.pyc")


def _compile(source: Path, target: Path) -> None:
    cached = Path(cache_from_source(str(source)))
    if cached.is_file() and cached.read_bytes()[:4] == MAGIC_NUMBER:
        shutil.copyfile(cached, target)
        return
    code = compile(source.read_bytes(), source.name, "exec", dont_inherit=True, optimize=0)
    target.write_bytes(MAGIC_NUMBER + bytes(12) + marshal.dumps(code))


def _extensions(modules: set[str]) -> list[Path]:
    """Return the extension modules that the imports of these guest modules load in this interpreter."""
    names = set()
    for source in _sources():
        for node in ast.walk(ast.parse(source.read_bytes())) if source.stem in modules else ():
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    program = (
        "import sys, json, importlib\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "files = [getattr(module, '__file__', None) or '' for module in sys.modules.values()]\n"
        "print(json.dumps([file for file in files if file.endswith('.so')]))"
    )
    argv = [sys.executable, "-I", "-S", "-c", program, *sorted(names)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return [Path(path) for path in json.loads(said)]


def _loader(executable: Path) -> Path:
    """Return the ELF interpreter that `executable` asks for (`man 5 elf`, PT_INTERP)."""
    data = executable.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise InfraError(f"sandboxes in containers need a 64-bit Linux Python, got {executable}")
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for index in range(count):
        start = offset + index * size
        if struct.unpack_from("<I", data, start)[0] == _PT_INTERP:
            place, length = (struct.unpack_from("<Q", data, start + field)[0] for field in (8, 32))
            return Path(data[place : place + length].rstrip(b"\0").decode()).resolve()
    raise InfraError(
        f"{executable} is linked statically; run the ROCK server with a dynamically linked Python to use containers"
    )


def _libraries(loader: Path, programs: list[Path]) -> set[Path]:
    """Return the shared libraries of these programs, as the loader itself finds them."""
    found: set[Path] = set()
    for program in programs:
        listed = subprocess.run([loader, "--list", program], check=True, capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            path = line.partition("=>")[2].split()
            if path and path[0].startswith("/"):
                found.add(Path(path[0]))
    return found
