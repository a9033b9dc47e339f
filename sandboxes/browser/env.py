"""The rules: an action in, what the page then shows out; a word to the user ends the task.

An agent in the box may use the same browser over MCP (`box.mcp`) and leave its word there.

Acts only through the sandbox it is handed. It keeps the task, the number of turns and what the agent told the user, all of
which a replay of the actions restores. A browser that fails is an `InfraError`, never a reward of 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from rock_env.env import Attachment, FreshBoxes, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument, RockError
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.browser import webshop
from sandboxes.browser.actions import Action, parse
from sandboxes.browser.catalog import scenario
from sandboxes.browser.grade import grade
from sandboxes.browser.link import FOLDER, Link
from sandboxes.browser.miniwob import PREFIX, page_files
from sandboxes.browser.params import BrowserParams, narrow
from sandboxes.browser.reply import End, Reply
from sandboxes.browser.scenario import Message
from sandboxes.browser.view import render

__all__ = ["BrowserEnv", "make"]

_RECORD = (
    Attachment("requests.har", "application/json", f"{FOLDER}/requests.har"),
    Attachment("trace.zip", "application/zip", f"{FOLDER}/trace.zip"),
)
_MOST_DOWNLOADS = 20
_STATE = "state.json"
"""Where the site's server finds the state that a task begins with."""


class BrowserEnv:
    """One episode at a time over the sandbox it is handed. It is `FreshGraded`, `KeepsRunning` and `Attaching`."""

    def __init__(self, params: BrowserParams) -> None:
        self._params = params
        self._task = ""
        self._link: Link | None = None
        self._seen: Reply | None = None
        self._turns = 0
        self._message: Message = None
        self._end: End | None = None
        self._attached: list[Attachment] = []

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Start a browser in the fresh sandbox and open the task's site; `seed` changes nothing."""
        self._task, self._link, self._seen, self._turns, self._message = task.payload, None, None, 0, None
        self._end, self._attached = None, []
        request, files = _opening(task.payload)
        asked = {
            **request,
            "most_tree": 2 * self._params.max_tree_chars,
            "pictures": self._params.pictures,
            "record": self._params.record,
        }
        self._link, self._seen = await Link.start(sandbox, asked, files)
        info: dict[str, str] = {"task": task.payload}
        if self._params.pictures:
            info["picture"] = self._link.picture
        self._attached = self._pictured()
        return render(self._seen, "", self._params.max_tree_chars), info

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Carry out one action, or say what is wrong with it."""
        if self._link is None or self._seen is None:
            raise FailedPrecondition("step before reset, or after the grade: reset the environment first")
        self._turns += 1
        self._attached = []
        info: dict[str, str | int | float | bool] = {}
        error = ""
        ended = False
        try:
            call = parse(action, self._params.actions)
        except InvalidArgument as wrong:
            error, info["illegal"] = wrong.message, True
            self._seen = replace(self._seen, error="", notes=())
        else:
            ended = await self._act(sandbox, call)
            if self._params.pictures:
                info["picture"] = self._link.picture
            self._attached = self._pictured()
        if self._seen.error and not error:
            info["tool_failed"] = True
        done = ended or self._seen.done
        return StepResult(
            render(self._seen, error, self._params.max_tree_chars),
            terminated=done,
            truncated=not done and self._turns >= self._params.max_turns,
            info=info,
        )

    async def _act(self, sandbox: Sandbox, call: Action) -> bool:
        """Do what the call says and return whether it ends the task."""
        assert self._link is not None  # `step` has looked
        assert self._seen is not None
        if call.op in ("send_msg_to_user", "report_infeasible"):
            self._message = str(call.args["text"]) if call.op == "send_msg_to_user" else None
            self._seen = replace(self._seen, error="", notes=())
            return True
        self._seen = await self._link.ask(sandbox, {"do": "act", "op": call.op, "args": dict(call.args)})
        return False

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        """Grade as `evaluate` does: the episode's own box has all that counts."""
        return await self.evaluate(box)

    def attachments(self) -> Sequence[Attachment]:
        """Return a picture with an observation, downloads and records with the grade."""
        return self._attached

    def _pictured(self) -> list[Attachment]:
        if not self._params.pictures or self._link is None:
            return []
        return [Attachment("page.png", "image/png", self._link.picture)]

    def keeps_running(self) -> bool:
        """Return True: what is graded is in the memory of the site's server."""
        return True

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """End the episode and all that runs in the box, and grade what it came to; the second time as the first."""
        if self._end is None:
            if self._link is None:
                raise FailedPrecondition("grading before reset: reset the environment first")
            link, self._link = self._link, None
            self._end = await link.end(sandbox)
            recorded = self._params.record and await link.record(sandbox)
            await sandbox.kill_all()
            self._attached = [*(_RECORD if recorded else ()), *await _downloads(sandbox)]
        return grade(self._task, self._end, self._message, self._turns)


async def _downloads(sandbox: Sandbox) -> list[Attachment]:
    """Return what lies among the downloads, put there by the browser or a program beside it."""
    try:
        found = await sandbox.list_files(f"{FOLDER}/downloads")
    except RockError:
        return []
    names = sorted(entry.path for entry in found)[:_MOST_DOWNLOADS]
    return [Attachment(name, "application/octet-stream", f"{FOLDER}/downloads/{name}") for name in names]


def _opening(payload: str) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the site that a task begins at, as the driver is told of it, and the files that the site needs."""
    if payload.startswith(PREFIX):
        name, _, seed = payload.removeprefix(PREFIX).partition("/")
        request = {"site": "static", "host": "miniwob.test", "start": f"/miniwob/{name}.html", "seed": seed}
        return request, page_files(name)
    if payload.startswith(webshop.PREFIX):
        site, start, state = "webshop", "/", webshop.first_state(payload)
        files = {webshop.SHOP: webshop.shop_file()}
    else:
        drawn = scenario(payload)
        site, start, state = drawn.site, drawn.start, drawn.state
        files = {f"files/{name}": content for name, content in drawn.files.items()}
    request = {"site": site, "host": f"{site}.test", "start": start, "seed": ""}
    return request, {**files, _STATE: json.dumps(state).encode()}


def make(params: EnvParams) -> BrowserEnv:
    """Build one environment. Raise `InvalidArgument` for another environment's arguments."""
    return BrowserEnv(narrow(params))
