"""Make an environment, play one episode, close it. Run: python examples/01_make_and_step.py

`rock_env.make` starts an embedded server (worker processes behind a unix socket) and hands out an environment with GEM's
semantics. The same code works against a server elsewhere.
"""

import rock_env


def main() -> None:
    env = rock_env.make("frozen_lake", slippery=False)
    observation, _ = env.reset(seed=7)
    print(observation)
    for action in ["down", "right", "down", "right", "down", "right"]:
        observation, reward, terminated, truncated, _ = env.step(action)
        print(f"\n{action}: reward {reward}\n{observation}")
        if terminated or truncated:
            break
    env.close()


if __name__ == "__main__":
    main()
