"""Code written for GEM runs unchanged. Run: python examples/02_gem.py  (needs gem-llm, Python < 3.12)"""

import gem


def main() -> None:
    env = gem.make("rock:frozen_lake")
    env.reset(seed=3)
    episode_reward = 0.0
    for turn in range(1, 101):
        action = env.sample_random_action()
        _, reward, terminated, truncated, _ = env.step(action)
        episode_reward += reward
        if terminated or truncated:
            print(f"over after {turn} turns, reward {episode_reward}")
            break
    env.close()


if __name__ == "__main__":
    main()
