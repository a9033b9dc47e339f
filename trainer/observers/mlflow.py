"""MLflow: a run of the experiment `MLFLOW_EXPERIMENT_NAME` (`ale`), at `MLFLOW_TRACKING_URI`, else in the run folder."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from trainer.observers.base import ObservedRun, Outcome

__all__ = ["MLflow"]

_MOST = 100
"""Settings of one call, of metrics ten times as many: MLflow's own bounds."""
_NOT_OF_A_NAME = re.compile(r"[^\w. -]")
_STATES = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MLflow:
    """By the client, which adds no tags of the machine. A record's number is `KIND/NAME`. In its name `/` becomes a dot,
    because a name is a file and there are both `turns` and `turns/summary`; `@`, which MLflow refuses, becomes `_`."""

    def begin(self, run: ObservedRun) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        place = os.environ.get("MLFLOW_TRACKING_URI") or (run.folder / "mlruns").absolute().as_uri()
        self._client, name = MlflowClient(place), os.environ.get("MLFLOW_EXPERIMENT_NAME", "ale")
        experiment = self._client.get_experiment_by_name(name)
        at = experiment.experiment_id if experiment else self._client.create_experiment(name)
        known = self._client.search_runs([at], f"tags.`ale.run` = '{run.id}'")
        found = (
            known[0] if known else self._client.create_run(at, run_name=run.name, tags={"ale.run": run.id})
        )
        self._id = found.info.run_id
        settings = [Param(name, str(value)) for name, value in run.settings.items()] if not known else []
        for start in range(0, len(settings), _MOST):
            self._client.log_batch(self._id, params=settings[start : start + _MOST])

    def record(self, step: int, kind: str, metrics: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        told = [
            Metric(f"{kind}/{_NOT_OF_A_NAME.sub('_', name.replace('/', '.'))}", value, now_ms, step)
            for name, value in metrics.items()
        ]
        for start in range(0, len(told), 10 * _MOST):
            self._client.log_batch(self._id, metrics=told[start : start + 10 * _MOST])

    def end(self, outcome: Outcome) -> None:
        self._client.set_terminated(self._id, _STATES[outcome])
