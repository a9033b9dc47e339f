"""Record oracle episodes, read one back, and run it again. Run: python examples/04_replay.py [FOLDER]

A trajectory holds everything: actions, observation hashes, rewards, seeds. Running it again must give the same.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from agent_runtime.replay import replay
from agent_runtime.store import index, read_segment
from ale.rock import connected


def record(folder: Path) -> None:
    words = ["rollout", "--env", "sokoban", "--policy", "oracle", "--episodes", "4", "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "ale", *words], check=True)


async def run_again(folder: Path) -> None:
    trajectories = [trajectory for info in index(folder) for trajectory in read_segment(info.path)]
    first = trajectories[0]
    print(f"{first.id}: {' '.join(first.actions)} -> reward {first.reward}")

    async with connected() as rock:
        for trajectory in trajectories:
            report = await replay(trajectory, rock)
            print(f"{trajectory.id}: {'identical' if report.identical else report.divergence}")


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/example-04")
    record(place)
    asyncio.run(run_again(place))
