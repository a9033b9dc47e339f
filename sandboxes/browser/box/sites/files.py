"""A file manager: folders to walk through, and files and folders to make, rename, move and delete."""

from __future__ import annotations

from html import escape

from sandboxes.browser.box.web import (
    Attachment,
    Page,
    Redirect,
    Request,
    State,
    button,
    field_of,
    form,
    link,
    page,
    pick,
    table,
    upload,
)

__all__ = ["answer"]


def answer(state: State, request: Request) -> Page | Redirect | Attachment:
    """Answer one request. The state maps each path to its content; folders end with a slash."""
    tree: dict[str, str] = state["tree"]
    match request.path:
        case ():
            return Redirect("/at/")
        case ("at", *parts):
            return _show(tree, "/".join(parts), request.query.get("note", ""))
        case ("download", *parts) if (path := "/".join(parts)) in tree and not path.endswith("/"):
            return Attachment(parts[-1], tree[path])
        case ("upload",) if request.method == "POST":
            folder = request.text("path")
            problem = _upload(tree, folder, request.form.get("file") or [])
            return Redirect(f"/at/{folder.rstrip('/')}" + (f"?note={problem}" if problem else ""))
        case (("rename" | "move" | "delete" | "create") as act,) if request.method == "POST":
            path = request.text("path")
            problem = _ACTS[act](tree, path, request.text("value"))
            folder = path.rstrip("/").rpartition("/")[0] if act != "create" else path.rstrip("/")
            return Redirect(f"/at/{folder}" + (f"?note={problem}" if problem else ""))
    return page("Not found", link("Files", "/at/"), status=404)


def _below(tree: dict[str, str], path: str) -> list[str]:
    return [each for each in tree if each == path or (path.endswith("/") and each.startswith(path))]


def _show(tree: dict[str, str], where: str, note: str) -> Page:
    if where in tree:
        content = "".join(f"<p>{escape(line)}</p>" for line in tree[where].splitlines())
        take = f"<p>{link('Download', f'/download/{where}')}</p>"
        return page(where, content, take, _acts(tree, where), _up(where), note=note)
    folder = f"{where}/" if where else ""
    if folder and folder not in tree:
        return page("Not found", link("Files", "/at/"), status=404)
    children = sorted(
        each
        for each in tree
        if each.startswith(folder) and each != folder and "/" not in each[len(folder) : -1]
    )
    rows = [
        (
            link(each[len(folder) :], f"/at/{each.rstrip('/')}"),
            "folder" if each.endswith("/") else "file",
            "" if each.endswith("/") else str(len(tree[each])),
        )
        for each in children
    ]
    hidden = f'<input type="hidden" name="path" value="{escape(folder, quote=True)}">'
    create = form("/create", hidden, field_of("New folder", "value"), send="Create folder")
    bring = upload("/upload", "File", "Upload", hidden)
    own = _acts(tree, folder) if folder else ""
    return page(
        f"Files: /{where}", table(("Name", "Kind", "Size"), rows), create, bring, own, _up(where), note=note
    )


def _up(where: str) -> str:
    return link("Up", f"/at/{where.rpartition('/')[0]}") if where else ""


def _acts(tree: dict[str, str], path: str) -> str:
    hidden = f'<input type="hidden" name="path" value="{escape(path, quote=True)}">'
    name = path.rstrip("/").rpartition("/")[2]
    folders = ["/", *sorted(f"/{each}" for each in tree if each.endswith("/") and not each.startswith(path))]
    rename = form("/rename", hidden, field_of("Name", "value", name), send="Rename")
    move = form("/move", hidden, pick("Move to", "value", folders), send="Move")
    delete = form("/delete", hidden, button("Delete"), confirm=f"Delete {name}?")
    return rename + move + delete


def _rename(tree: dict[str, str], path: str, value: str) -> str:
    parent = path.rstrip("/").rpartition("/")[0]
    return _put(tree, path, f"{parent}/{value}" if parent else value, value)


def _move(tree: dict[str, str], path: str, value: str) -> str:
    name = path.rstrip("/").rpartition("/")[2]
    target = value.strip("/")
    if target and f"{target}/" not in tree:
        return "No+such+folder."
    return _put(tree, path, f"{target}/{name}" if target else name, name)


def _put(tree: dict[str, str], path: str, to: str, name: str) -> str:
    to += "/" if path.endswith("/") else ""
    if path not in tree or not name or "/" in name:
        return "That+is+no+name."
    if to in tree or to.startswith(path if path.endswith("/") else f"{path}/"):
        return "That+name+is+taken."
    for each in _below(tree, path):
        tree[to + each[len(path) :]] = tree.pop(each)
    return ""


def _delete(tree: dict[str, str], path: str, value: str) -> str:
    for each in _below(tree, path) if path else ():
        del tree[each]
    return ""


def _create(tree: dict[str, str], path: str, value: str) -> str:
    if not value or "/" in value or f"{path}{value}" in tree or f"{path}{value}/" in tree:
        return "That+name+is+taken."
    tree[f"{path}{value}/"] = ""
    return ""


def _upload(tree: dict[str, str], path: str, file: list[str]) -> str:
    name, content = file if len(file) == 2 else ("", "")
    if not name or "/" in name or (path and path not in tree):
        return "Choose+a+file."
    if f"{path}{name}" in tree or f"{path}{name}/" in tree:
        return "That+name+is+taken."
    tree[f"{path}{name}"] = content
    return ""


_ACTS = {"rename": _rename, "move": _move, "delete": _delete, "create": _create}
