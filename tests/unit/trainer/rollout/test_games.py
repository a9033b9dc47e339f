"""Which runs need no server: games of ALE's own, unless something of the run asks for one."""

import pytest
from local_fleet import config_of

from trainer.rollout.games import is_played_here


@pytest.mark.parametrize("env", ["frozen_lake", "sokoban", "fork_chain", "math"])
def test_games_of_our_own_are_played_here(env):
    assert is_played_here(config_of(env=env, env_args={}))


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "swe", "env_args": {}},
        {"rollout": {"games": "served"}},
        {"rollout": {"rock_address": "unix:///nowhere"}},
        {"rollout": {"backends": ("process",)}},
        {"reward": {"routes": [{"worker": "judge"}]}},
    ],
    ids=["a sandbox", "as asked", "a server of the user's", "backends", "a reward"],
)
def test_all_others_have_a_server(changes):
    assert not is_played_here(config_of(**changes))
