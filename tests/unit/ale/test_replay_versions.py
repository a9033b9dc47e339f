"""What `show` and `tokens` say of a turn that two versions of the weights sampled."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent_runtime.store import read_segment
from ale.replay.showing import transcript
from ale.replay.tokens import TurnAccount, _lines

(RECORD,) = read_segment(Path(__file__).parents[1] / "kept" / "spans.rollouts")
SAID = "policy version 6 (9 tokens) then 7 (15 tokens)"


def test_show_says_which_version_sampled_how_many_tokens() -> None:
    heads = [line for line in transcript(RECORD, tokens=True) if line.startswith("-- turn")]
    assert [head.partition(", 24 tokens")[0] for head in heads] == [f"-- turn {n}: {SAID}" for n in (0, 1)]


def test_tokens_say_it_too_and_json_has_the_pairs() -> None:
    turn = RECORD.turns[0]
    account = TurnAccount(RECORD.id, 0, ("trained",) * 24, 0.5, 0, turn.policy_version, (-0.5,) * 24, ())
    step: Any = SimpleNamespace(step=1, set_aside={})
    assert any(SAID in line for line in _lines(RECORD, step, [account]))
    assert json.loads(json.dumps(asdict(account)))["version"] == [[6, 9], [7, 15]]
