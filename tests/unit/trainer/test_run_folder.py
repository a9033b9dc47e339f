"""A run folder belongs to one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_fleet import Listening, config_of

from trainer.errors import RunFolderError
from trainer.files.folder import claimed
from trainer.loop import train

HOLD = """
import sys
from pathlib import Path
from trainer.files.folder import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    sys.stdin.read()
"""


def test_two_processes_never_train_in_one_folder_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    """Two that resumed one run would write each other's checkpoints, records and metrics."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(RunFolderError, match=r"another process trains in .* --run NAME"):
            train(config_of(), tmp_path, observer=Listening(), resume=True)
        other.kill()
    with claimed(tmp_path):
        pass
