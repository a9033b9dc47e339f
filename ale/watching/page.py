"""`ale train --console`: the console on the run that begins, in a process that ends with it and that it never waits for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ale.training.runs import CONFIG
from trainer.signals import held

__all__ = ["PORT", "Page"]

PORT = 8399
_LOOK_S, _ENDS_S = 0.2, 2.0


class Page:
    """A context manager. `say` is told the address, or why there is none, on a thread of its own."""

    def __init__(self, folder: Path, say: Callable[[str], None], port: int = PORT) -> None:
        """`folder` need not be there yet: the console starts once it holds the run's settings."""
        self._folder, self._say, self._port = folder, say, port
        self._ends = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._open, name="console", daemon=True)

    def __enter__(self) -> Page:
        with suppress(RuntimeError), held():  # no thread can be started: the run goes on without
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        if self._process is None:  # or it starts at this moment
            with suppress(RuntimeError):
                self._thread.join(_ENDS_S)
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()  # which ends it, as the death of this process would
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(_ENDS_S)

    def _open(self) -> None:
        while not (self._folder / CONFIG).is_file():
            if self._ends.wait(_LOOK_S):
                return
        try:
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ale.console.beside", str(self._folder), str(self._port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            self._tell(f"note: no console: {error}. The run goes on.")
            return
        assert process.stdout is not None
        assert process.stderr is not None
        if self._ends.is_set():
            process.kill()
        with process.stdout as said, process.stderr as errors:
            if address := said.readline().strip():
                self._tell(f"console: {address}")
            why = (errors.read().strip().splitlines() or ["its process ended."])[-1]  # to its end
        if not address and not self._ends.is_set():
            self._tell(
                f"note: no console: {why} The run goes on; `ale console {self._folder} --port 0` opens one."
            )

    def _tell(self, what: str) -> None:
        with suppress(Exception):  # whoever hears it ends no run
            self._say(what)
