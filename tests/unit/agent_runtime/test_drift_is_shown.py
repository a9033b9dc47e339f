"""An agent that sends its own answers back changed: `ale replay show` and `stats` say where contexts began anew."""

from __future__ import annotations

import json

from agent_session import Session, system, user

from agent_runtime.chat import ChatMessage
from agent_runtime.store import segment_path, write_segment
from ale.replay.showing import show_command
from ale.replay.stats import stats_command

START = [system(), user("Fix it.")]


def test_drift_shows_as_contexts_begun_anew(tmp_path, capsys):
    session = Session()
    answer = "I look at the file."
    session.ask(START, answer)
    session.ask([*START, ChatMessage("assistant", answer), user("Go on.")], "Done, I think.")
    changed = [ChatMessage("assistant", "Something else."), user("Go on."), user("And?")]
    session.ask([*START, *changed], "Yes.")
    write_segment(segment_path(tmp_path, "rollout"), [session.record()])
    show_command(str(tmp_path), None, tokens=False)
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("-- turn")]
    assert ["context begun anew" in line for line in heads] == [False, False, True]
    stats_command(str(tmp_path), as_json=True)
    assert sum(json.loads(capsys.readouterr().out)["contexts_anew"].values()) == 1
    stats_command(str(tmp_path), as_json=False)
    assert "turns that began their context anew" in capsys.readouterr().out
