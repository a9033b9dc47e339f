"""The console's application: what its page asks, as JSON and as server-sent events. It writes nothing and takes no path.

A run is its name in the list that the server made, and a rollout an id that its rows hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import Response

from ale.console import rollouts
from ale.console.answers import Json, following
from ale.console.catalog import PLACE, Catalog
from ale.console.pictures import image_of
from ale.console.rock import Rock
from ale.console.rock_routes import add_rock
from ale.console.run import UNREADABLE, WatchedRun, finite
from ale.replay.listing import Wanted
from ale.replay.rows import Outcomes
from ale.training.comparing import Alike, differences
from ale.training.reading import RunRecord
from rock_env.telemetry.shown import visible
from trainer.live.door import ask
from trainer.live.status import lines

__all__ = ["FILES", "about", "application"]

LOOKS_S = 0.3
"""Between two looks at a run's folders, while a page watches it."""
MOST_WATCHERS = 64
ACCOUNT_S = 600.0
MOST_ACCOUNT = 256 << 20
_Account = tuple[list[Any] | None, str]
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {
    file.name: file.read_bytes()
    for file in (resources.files("ale.console") / "page").iterdir()
    if file.name.endswith(tuple(_TYPES))
}
"""The page's own files: nothing else is ever served as one."""

Place = Annotated[str, Path(pattern=f"^{PLACE}$")]
Asked = Annotated[str, Query(pattern=f"^{PLACE}$")]
"""The place of a run, too."""
Id = Annotated[str, Query(max_length=500)]
Pattern = Annotated[str, Query(max_length=200)]
Step = Annotated[int | None, Query(ge=-(1 << 60), lt=1 << 60)]
Start = Annotated[int, Query(ge=0, lt=1 << 40)]


def application(catalog: Catalog, rock: Rock | None = None) -> FastAPI:
    """Return the application, without who may ask (`ale.console.guard`)."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, default_response_class=Json)
    _add_page(app)
    _add_runs(app, catalog)
    _add_rollouts(app, catalog)
    _add_pictures_and_pairs(app, catalog)
    _add_account(app, catalog)
    add_rock(app, rock)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/")
    def index() -> Response:
        return _file("index.html")

    @app.get("/page/{name}")
    def file(name: str) -> Response:
        return _file(name)


def _file(name: str) -> Response:
    if name not in FILES:
        raise HTTPException(404)
    kind = _TYPES[f".{name.rpartition('.')[2]}"]
    return Response(FILES[name], media_type=f"{kind}; charset=utf-8")


def _run(catalog: Catalog, place: str) -> WatchedRun:
    if (found := catalog.at(place)) is None:
        raise HTTPException(404, "no such run, or several of this name: choose it from the list of runs")
    return found


def _add_runs(app: FastAPI, catalog: Catalog) -> None:
    @app.get("/api/runs")
    def listed() -> Any:
        found = [about(place, run) for place, run in catalog.all().items()]
        return Json({"places": visible(catalog.places), "runs": found})

    @app.get("/api/runs/{place}")
    def run(place: Place) -> Any:
        return Json(about(place, _run(catalog, place)))

    @app.get("/api/runs/{place}/metrics")
    def metrics(
        place: Place,
        names: Annotated[str, Query(max_length=4000)] = "",
        points: Annotated[int, Query(ge=2, le=5000)] = 1000,
    ) -> Any:
        found = _run(catalog, place).metrics(names.split(",")[:100], points)
        return Json({**found, "problem": visible(found["problem"])})

    @app.get("/api/runs/{place}/between")
    def steps_beside(place: Place, first: Step = None, last: Step = None) -> Any:
        watched = _run(catalog, place)
        found = watched.between(first, last)
        return Json({**found, "tasks": rollouts.changed(watched.rows(), found["first"], found["last"])})

    @app.get("/api/compare")
    def compared(runs: Annotated[str, Query(pattern=f"^{PLACE}(,{PLACE}){{1,5}}$")]) -> Any:
        places = runs.split(",")
        chosen = [_run(catalog, place) for place in places]
        groups = [Alike(run.folder.name, [run.record()[0]]) for run in chosen]
        apart = chosen[0].parting(chosen[1]) if len(chosen) == 2 else None
        settings = {
            name: [visible(str(value)[:200]) for value in values]
            for name, values in differences(groups).items()
        }
        told = [
            {"place": place, "name": visible(run.folder.name)}
            for place, run in zip(places, chosen, strict=True)
        ]
        parting = {"step": apart[0], "name": visible(apart[1])} if apart else None
        return Json({"runs": told, "settings": settings, "parting": parting})

    watchers = asyncio.Semaphore(MOST_WATCHERS)

    @app.get("/api/runs/{place}/events")
    async def events(place: Place) -> Any:
        watched = _run(catalog, place)
        return following(lambda: asyncio.to_thread(watched.stamp), watchers, LOOKS_S)


def about(place: str, run: WatchedRun) -> dict[str, Any]:
    """Return what the table of runs shows of one."""
    record, problem = run.record()
    curve = record.curve
    doing, is_live = _doing(run)
    return {
        "place": place,
        "name": visible(run.folder.name),
        "folder": visible(str(run.folder)),
        "settings": {
            name: visible(str(record.settings[name])[:200])
            for name in ("env", "algo", "model")
            if name in record.settings
        },
        "seed": record.seed,
        "steps": record.steps,
        "steps_wanted": record.steps_wanted,
        "state": _state(run, record, is_live=is_live),
        "doing": visible(doing),
        "problem": visible(problem),
        "changed": _changed(run),
        "train_s": finite(record.train_s),
        "signs": run.signs(),
        "curve": [
            [each.step, *map(finite, (each.success, each.success_low, each.success_high))]
            for each in curve[-200:]
        ],
    }


def _doing(run: WatchedRun) -> tuple[str, bool]:
    """Return what a run says that it is busy with, as `ale status` does, and whether one goes on here."""
    try:
        status = ask(run.folder)
    except UNREADABLE as error:
        return str(error), True
    return (next(iter(lines(status)), ""), True) if status else ("", False)


def _state(run: WatchedRun, record: RunRecord, *, is_live: bool) -> str:
    if is_live:
        return "live"
    if (run.folder / "summary.json").is_file():
        return "finished"
    return "stopped" if record.metrics else "records" if not record.settings else "not begun"


def _changed(run: WatchedRun) -> float | None:
    stamps = [each[2] for each in run.stamp() if isinstance(each, tuple)]
    return max(stamps) / 1e9 if stamps else None


def _add_rollouts(app: FastAPI, catalog: Catalog) -> None:
    @app.get("/api/runs/{place}/rollouts")
    def listed(
        place: Place,
        *,
        outcome: Annotated[str, Query(pattern="^(|passed|unsolved|errored|ungraded|failed)$")] = "",
        task: Pattern = "*",
        group: Pattern = "*",
        file: Pattern = "*",
        text: Pattern = "",
        step: Annotated[int | None, Query(ge=0, lt=1 << 60)] = None,
        sort: Annotated[str, Query(max_length=10)] = "",
        start: Start = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> Any:
        known = _run(catalog, place).rows()
        asked = {"unsolved", "errored"} if outcome == "failed" else {outcome} - {""}
        wanted = Wanted(
            Outcomes(**dict.fromkeys(asked, True)), task=task, group=group, file=file, text=text, step=step
        )
        found = rollouts.window(known, wanted, sort=sort, start=start, limit=limit)
        problems = [visible(each) for each in known.problems[:20]]
        return Json({**found, "left": known.left, "problems": problems, "damaged": len(known.problems)})

    @app.get("/api/runs/{place}/grid")
    def grid(place: Place) -> Any:
        return Json(rollouts.grid(_run(catalog, place).rows()))

    @app.get("/api/runs/{place}/rollout")
    def rollout(
        place: Place,
        *,
        id: Id,
        start: Start = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 300,
        whole: Start | None = None,
    ) -> Any:
        run = _run(catalog, place)
        rows, at = _found(run, id)
        try:
            return Json(rollouts.one(rows, at, run.folder, start=start, limit=limit, whole=whole))
        except UNREADABLE as error:
            raise HTTPException(409, visible(str(error))) from error


def _add_pictures_and_pairs(app: FastAPI, catalog: Catalog) -> None:
    @app.get("/api/runs/{place}/image")
    def image(place: Place, id: Id, file: Start) -> Response:
        """Return a picture that came with an observation, by its place in the record."""
        rows, at = _found(_run(catalog, place), id)
        try:
            path, row = rows.all[at]
            content, kind = image_of(path, row, file)
        except UNREADABLE as error:
            raise HTTPException(409, visible(str(error))) from error
        return Response(content, media_type=kind)

    @app.get("/api/pair")
    def pair(one: Asked, first: Id, other: Asked, second: Id) -> Any:
        chosen = [(_run(catalog, place), name) for place, name in ((one, first), (other, second))]
        places = [rows.all[at] for rows, at in (_found(run, name) for run, name in chosen)]
        try:
            return Json(rollouts.pair(*places))
        except UNREADABLE as error:
            raise HTTPException(409, visible(str(error))) from error


def _found(run: WatchedRun, identity: str) -> tuple[Any, int]:
    rows = run.rows()
    if (at := rows.find(identity)) is None:
        raise HTTPException(404, "no rollout of this run has this id")
    return rows, at


def _add_account(app: FastAPI, catalog: Catalog) -> None:
    busy = asyncio.Lock()

    @app.post("/api/runs/{place}/account")
    async def account(request: Request, place: Place, id: Id) -> Any:
        """Have `ale replay tokens` compute what became of a rollout's tokens: one at a time, in a process of its own."""
        run = _run(catalog, place)
        rows, at = await asyncio.to_thread(_found, run, id)
        if busy.locked():
            raise HTTPException(429, "another step is being computed again: ask once it is done")
        async with busy:
            said, why = await _while_asked(request, _tokens(str(run.folder), rows.all[at][1].id))
        if said is None:
            raise HTTPException(409, visible(why))
        return Json(said)


async def _while_asked(request: Request, work: Coroutine[Any, Any, _Account]) -> _Account:
    """Return what the work returns; end it once nobody waits for it."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    done, leaves = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({done, leaves}, return_when=asyncio.FIRST_COMPLETED)
        return done.result() if done.done() else (None, "nobody waits for it")
    finally:
        done.cancel()
        leaves.cancel()
        await asyncio.gather(done, leaves, return_exceptions=True)


async def _tokens(folder: str, identity: str) -> _Account:
    """Return what the command prints, or why it printed nothing."""
    words = ("-m", "ale", "replay", "tokens", "--json", "--", folder, identity)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=dict(os.environ),
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        async with asyncio.timeout(ACCOUNT_S):
            out, errors = await asyncio.gather(_read(child.stdout), _read(child.stderr))
            await child.wait()
    except TimeoutError:
        return None, f"`ale replay tokens` took longer than {ACCOUNT_S:g} s: run it in a terminal."
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # and what it started
            await child.wait()
    if child.returncode:
        return None, errors.decode(errors="replace")[-2000:].strip()
    try:
        return await asyncio.to_thread(lambda: [_numbers(turn) for turn in json.loads(out)]), ""
    except (ValueError, KeyError, TypeError) as error:
        return None, f"`ale replay tokens` printed no account: {error}. Run it in a terminal."


async def _read(stream: asyncio.StreamReader) -> bytes:
    """Return what a stream holds to its end, at most `MOST_ACCOUNT` bytes; more is read and left out."""
    kept = bytearray()
    while piece := await stream.read(1 << 16):
        kept += piece[: MOST_ACCOUNT - len(kept)]
    return bytes(kept)


def _numbers(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn's account with None for numbers that are none, which an expert's are."""
    lists = {name: [finite(each) for each in turn[name]] for name in ("sampled_logprobs", "learner_logprobs")}
    texts = [visible(each) for each in turn["texts"]]
    return {**turn, "advantage": finite(turn["advantage"]), **lists, "texts": texts}
