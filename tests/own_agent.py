"""A small CLI agent for tests, and a shelf with it: what it does is told by the first word of its command.

`work` asks, runs what it is told and goes on until it is told nothing; `insist` then says so and asks again, twice. The
others go wrong: `stubborn` asks again for ever where it is refused, `silent` never asks, `slow` sleeps after the first
answer, `killed` does not survive it, `hasty` does not wait for it.
"""

from __future__ import annotations

from pathlib import Path

from agent_runtime.agents.install import MANIFEST
from agent_runtime.agents.spec import AgentSpec, read_spec

PROGRAM = """
import json, os, subprocess, sys, time, urllib.error, urllib.request

how, prompt = sys.argv[1:3]
parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
bash = {"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": parameters}}
messages, insisted = [{"role": "user", "content": prompt}], 0

def ask():
    body = json.dumps({"model": "m", "messages": messages, "tools": [bash]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["URL"] + "/v1/chat/completions", body, headers)
    answer = urllib.request.urlopen(request, timeout=0.5 if how == "hasty" else 300)
    return json.load(answer)["choices"][0]["message"]

if how == "silent":
    print("there is no such model")
    sys.exit(3)
while True:
    try:
        answer = ask()
    except urllib.error.HTTPError as error:
        if how == "stubborn":
            time.sleep(0.1)
            continue
        print(error.read().decode())
        sys.exit(1)
    messages.append(answer)
    if how == "slow":
        time.sleep(600)
    if how == "killed":
        os.kill(os.getpid(), 9)
    if not answer.get("tool_calls"):
        if how != "insist" or insisted == 2:
            break
        insisted += 1
        messages.append({"role": "user", "content": "Go on."})
    for call in answer.get("tool_calls") or ():
        try:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
        except (ValueError, KeyError, TypeError) as error:
            done = repr(error)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done})
"""


SCRIPT = """#!/bin/sh
wget -q -O answer --header "Authorization: Bearer $KEY" --header "Content-Type: application/json" \\
  --post-data '{"model": "m", "messages": [{"role": "user", "content": "What now?"}]}' "$URL/v1/chat/completions" &&
grep -q "write it down" answer && echo "$1" >> log
"""
"""An agent without Python: it asks once."""


def script_agent() -> AgentSpec:
    text = own_agent_yaml("written").replace("pip:", "npm:").replace("own==1.0", "own@1.0.0")
    return read_spec(text.replace("own:main", "start.sh"), source="test")


def own_agent_yaml(how: str) -> str:
    return f"""
name: own
version: "1"
about: a test's
dialect: chat
install: {{pip: ["own==1.0"], program: "own:main"}}
command: [{how}, "{{prompt}}"]
env: {{URL: "{{base_url}}", KEY: "{{key}}"}}
"""


def own_agent(how: str) -> AgentSpec:
    return read_spec(own_agent_yaml(how), source="test")


def shelf_with_own_agent(folder: Path) -> Path:
    """Make a shelf with both below `folder`, as an install leaves it."""
    shelf = folder / "shelf"
    programs = {own_agent("work").folder: ("start.py", PROGRAM), script_agent().folder: ("start.sh", SCRIPT)}
    for name, (program, text) in programs.items():
        place = shelf / name
        place.mkdir(parents=True)
        (place / program).write_text(text)
        (place / program).chmod(0o755)
        (place / MANIFEST).write_text("{}")
    return shelf
