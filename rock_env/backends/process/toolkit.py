"""What every process sandbox on this machine shares, read-only: a small Python environment and the files of /etc.

Built once per backend, used by `backends/process/backend` and `backends/process/host_view`. The environment in the
box is this interpreter with the named distributions and what they require, the code that installed plugins have for boxes
(entry points `ale.box_code`), and nothing else that is installed here.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path

import rock_env.guest

__all__ = ["BOX_CODE", "Toolkit"]

BOX_CODE = "ale.box_code"
"""Entry points whose values name packages that programs of boxes import, such as an environment's driver of a browser."""

_PASSWD = "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/bash\n"
_GROUP = "root:x:0:\nagent:x:1000:\n"
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A folder to bind into each box, and what to bind over it."""

    folder: Path
    packages: tuple[tuple[Path, str], ...]
    """Each package's place on the host, and below the folder."""

    @property
    def names(self) -> frozenset[str]:
        """Return what can be imported of the packages."""
        return frozenset(
            name
            for _, point in self.packages
            if Path(point).parent.name == "site-packages"
            and (name := Path(point).name.removesuffix(".py")).isidentifier()
        )

    @classmethod
    def build(cls, folder: Path, distributions: tuple[str, ...]) -> Toolkit:
        """Lay the folder out. A distribution that is not installed is left out."""
        folder.mkdir(parents=True)
        etc = folder / "etc"
        etc.mkdir()
        for name, text in (("passwd", _PASSWD), ("group", _GROUP), ("hosts", _HOSTS)):
            (etc / name).write_text(text)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        python = folder / "python"
        site_packages = python / "lib" / version / "site-packages"
        site_packages.mkdir(parents=True)
        executable = Path(sys.executable).resolve()
        (python / "bin").mkdir()
        for name in ("python", "python3", version):
            (python / "bin" / name).symlink_to(executable)
        (python / "pyvenv.cfg").write_text(
            f"home = {executable.parent}\ninclude-system-site-packages = false\n"
        )
        (folder / "bin").mkdir()
        client = folder / "bin" / "rock-python"
        source = resources.files(rock_env.guest).joinpath("warm/client.py").read_text()
        client.write_text(f"#!{executable} -IS\n{source}")
        client.chmod(0o755)
        packages = []
        for place in sorted(_places(distributions)):
            point = site_packages / place.name
            if place.is_dir():
                point.mkdir()
            else:
                point.touch()
            packages.append((place, str(point.relative_to(folder))))
        for place, name in _box_code():
            point = site_packages / name
            point.mkdir(parents=True)
            packages.append((place, str(point.relative_to(folder))))
        return cls(folder, tuple(packages))


def _places(names: tuple[str, ...]) -> set[Path]:
    """Return the top-level files and folders of the distributions and of all they require."""
    places: set[Path] = set()
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # optional here (a marker for another platform); the program that needs it will say so
        waiting += _requirements(found)
        tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
        places |= {place for top in tops if (place := Path(str(found.locate_file(top)))).exists()}
    return places


def _box_code() -> list[tuple[Path, str]]:
    """Return each plugin's package for boxes: its folder, and its path below a folder of packages. Nothing is imported."""
    found = []
    for name in sorted({entry.value for entry in entry_points(group=BOX_CODE)}):
        top, *rest = name.split(".")
        spec = find_spec(top)
        for root in (spec and spec.submodule_search_locations) or ():
            if (place := Path(root, *rest)).is_dir():
                found.append((place, name.replace(".", "/")))
                break
    return found


def _requirements(found: Distribution) -> list[str]:
    """Return the names a distribution requires, without those of its extras."""
    names = []
    for requirement in found.requires or ():
        needs, _, marker = requirement.partition(";")
        match = re.match(r"[A-Za-z0-9._-]+", needs)
        if match and "extra" not in marker:
            names.append(match.group())
    return names
