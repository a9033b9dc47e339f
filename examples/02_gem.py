"""Code written for GEM runs unchanged. Run: python examples/02_gem.py  (needs gem-llm, Python < 3.12)

Importing `rock_env.gem` puts every installed environment into GEM's registry as `rock:NAME`.
"""

import random

import gem

import rock_env.gem


def main() -> None:
    print("registered:", ", ".join(rock_env.gem.register()))
    env = gem.make("rock:frozen_lake", size=4)
    observation, _ = env.reset(seed=3)
    print(observation)
    for turn in range(1, 101):
        action = random.choice(["left", "down", "right", "up"])
        observation, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            print(f"over after {turn} turns, reward {reward}\n{observation}")
            break
    env.close()


if __name__ == "__main__":
    main()
