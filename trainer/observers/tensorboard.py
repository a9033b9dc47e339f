"""TensorBoard: `events/` in the run folder, as durable as `metrics.jsonl`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from trainer.files.appended import Appended
from trainer.observers.base import ObservedRun, Outcome

__all__ = ["TensorBoard"]


class TensorBoard:
    """A record is on the disk when `record` returns. All methods raise `OSError`; `end` does nothing more than close."""

    def begin(self, run: ObservedRun) -> None:
        """Open a file of events."""
        events = run.folder / "events"
        events.mkdir(exist_ok=True)
        # Not EventFileWriter: its thread would meet a full disk after the step that caused it.
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(Appended(events / name))
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if run.resume_step is not None:  # makes TensorBoard forget what the cut steps wrote
            begin = SessionLog(status=SessionLog.START)
            self._add(Event(wall_time=time.time(), step=run.resume_step + 1, session_log=begin))

    def record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        """Add a record, its tags `KIND/NAME`."""
        values = [Summary.Value(tag=f"{kind}/{name}", simple_value=value) for name, value in metrics.items()]
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def end(self, outcome: Outcome) -> None:
        """Close the file."""
        self._records.close()

    def _add(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
