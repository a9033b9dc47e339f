"""Tasks at the file manager."""

from __future__ import annotations

from sandboxes.browser.scenario import On, SiteDraw, SiteScenario, SiteTemplate, State, Step, expecting, say

__all__ = ["TEMPLATES"]


def _site(draw: SiteDraw) -> State:
    first, second, third = draw.words(3)
    tree = {f"{first}/": "", f"{second}/": "", f"{first}/{third}/": ""}
    for number, thing in enumerate(draw.things(6)):
        folder = (f"{first}/", f"{second}/", f"{first}/{third}/")[number % 3]
        tree[f"{folder}{thing}.txt"] = f"Notes about the {thing}.\nNumber {draw.chance.randint(1000, 9999)}."
    return {"tree": tree}


def _file(draw: SiteDraw, state: State) -> str:
    files: list[str] = sorted(path for path in state["tree"] if not path.endswith("/"))
    return draw.chance.choice(files)


def _walk(path: str) -> list[Step]:
    parts = path.rstrip("/").split("/")
    names = [f"{part}/" for part in parts[:-1]] + [parts[-1] + ("/" if path.endswith("/") else "")]
    return [On("click", "link", name) for name in names]


def _rename(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    path = _file(draw, state)
    new = f"plan-{draw.chance.randint(100, 999)}.txt"
    to = f"{path.rpartition('/')[0]}/{new}"
    steps: list[Step] = [
        *_walk(path),
        On("fill", "textbox", "Name", f'"{new}"'),
        On("click", "button", "Rename"),
        say("done"),
    ]
    goal = f"Rename the file /{path} to {new}."
    return SiteScenario("files", goal, state, expecting(state, lambda s: _put(s, path, to)), steps)


def _put(state: State, path: str, to: str) -> None:
    state["tree"][to] = state["tree"].pop(path)


def _move(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    path = _file(draw, state)
    folders = [each for each in state["tree"] if each.endswith("/") and not _in(path, each)]
    folder = draw.chance.choice(sorted(folders))
    to = folder + path.rpartition("/")[2]
    steps: list[Step] = [
        *_walk(path),
        On("select_option", "combobox", "Move to", f'"/{folder}"'),
        On("click", "button", "Move"),
        say("done"),
    ]
    goal = f"Move the file /{path} into the folder /{folder}"
    return SiteScenario("files", goal, state, expecting(state, lambda s: _put(s, path, to)), steps)


def _in(path: str, folder: str) -> bool:
    return path.rpartition("/")[0] == folder.rstrip("/")


def _clear(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    folder = draw.chance.choice(sorted(each for each in state["tree"] if each.count("/") == 1))
    new = f"archive-{draw.chance.randint(100, 999)}"

    def change(state: State) -> None:
        for path in [each for each in state["tree"] if each.startswith(folder)]:
            del state["tree"][path]
        state["tree"][f"{new}/"] = ""

    steps: list[Step] = [
        On("fill", "textbox", "New folder", f'"{new}"'),
        On("click", "button", "Create folder"),
        *_walk(folder),
        'on_dialog("accept")',
        On("click", "button", "Delete"),
        say("done"),
    ]
    goal = f"Make a new folder /{new}/, and delete the folder /{folder} with all that is in it."
    return SiteScenario("files", goal, state, expecting(state, change), steps)


def _number(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    path = _file(draw, state)
    number = state["tree"][path].rpartition(" ")[2].rstrip(".")
    steps: list[Step] = [*_walk(path), say(number)]
    goal = f"Which number stands in the file /{path}? Tell the user, and change nothing."
    return SiteScenario("files", goal, state, expecting(state, lambda s: None, number), steps)


def _upload(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    folder = draw.chance.choice(sorted(each for each in state["tree"] if each.endswith("/")))
    name = f"report-{draw.chance.randint(100, 999)}.txt"
    content = f"Report about the {draw.things(1)[0]}.\nNumber {draw.chance.randint(1000, 9999)}."
    steps: list[Step] = [
        *_walk(folder),
        On("upload_file", "button", "File", f'"{name}"'),
        On("click", "button", "Upload"),
        say("done"),
    ]
    goal = f"Upload your file {name} into the folder /{folder}"
    check = expecting(state, lambda s: s["tree"].update({folder + name: content}))
    return SiteScenario("files", goal, state, check, steps, files={name: content.encode()})


TEMPLATES = (
    SiteTemplate("files-rename", "files", "train", _rename),
    SiteTemplate("files-move", "files", "train", _move),
    SiteTemplate("files-number", "files", "train", _number),
    SiteTemplate("files-upload", "files", "train", _upload),
    SiteTemplate("files-clear", "files", "held_out", _clear),
)
