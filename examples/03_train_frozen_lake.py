"""Train from Python: a few steps of IPA on FrozenLake. Run: python examples/03_train_frozen_lake.py [FOLDER]

The same as `ale train --env frozen_lake --algo ipa --steps 2 ...`: settings are resolved from the environment's recipe and
the overrides, and everything the run produced lies in its folder.
"""

import sys
from pathlib import Path

from ale import api, config

SMALL = [
    "rollout.groups_per_step=4",
    "rollout.group_size=4",
    "rollout.workers=1",
    "rollout.engines=1",
    "warmup.trajectories=8",
    "warmup.epochs=1",
    "eval.tasks=8",
]


def main(folder: Path) -> None:
    settings = config.resolve(options={"env": "frozen_lake", "algo": "ipa", "steps": 2}, overrides=SMALL)
    summary = api.train(settings.config, run_folder=folder)
    assert summary is not None  # None: somebody stopped it
    print(f"held-out success {summary.success_warmup:.2f} -> {summary.success_final:.2f}, all in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/example-03"))
