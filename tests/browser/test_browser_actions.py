"""Actions by mouse, keyboard and file, in a real browser."""

from __future__ import annotations

import pytest
from driving import act, begin, bid, go

from rock_env.sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)
NOTES = """<title>Notes</title><h1 id=said>nothing</h1>
<input id=field style="position:absolute;left:100px;top:300px;width:200px">
<div style="position:absolute;left:100px;top:100px;width:100px;height:100px;background:#ccc" id=pad></div><script>
const said = [], note = what => { said.push(what); document.getElementById("said").textContent = said.join(" "); };
pad.addEventListener("mousemove", () => said.at(-1) === "move" || note("move"));
for (const kind of ["mousedown", "mouseup", "click", "dblclick"])
  pad.addEventListener(kind, event => note(kind + (event.shiftKey ? "+shift" : "") + event.button));
field.addEventListener("keydown", event => note("key:" + event.key));
</script>"""
FILES = """<title>Files</title><h1 id=said>none</h1><label>File <input type=file id=f></label>
<label>Other <input id=other></label><a href="data:text/plain,hello" download="note.txt">Take</a>
<a href="/static.bin" download="../../evil.bin">Evil</a><script>
f.addEventListener("change", async () => { said.textContent = f.files[0].name + ": " + await f.files[0].text(); });
</script>"""


async def test_the_mouse_and_the_keyboard_act_on_places(box: Sandbox) -> None:
    link, _ = await begin(box, worse=NOTES)
    await go(link, box)
    seen = await act(link, box, "mouse_move", x=150, y=150)
    assert 'heading "move"' in seen.tree
    await act(link, box, "mouse_down", x=151, y=150, button="left")
    seen = await act(link, box, "mouse_up", x=151, y=150, button="left")
    assert 'heading "move mousedown0 move mouseup0 click0"' in seen.tree
    await act(link, box, "keyboard_down", key="Shift")
    await act(link, box, "mouse_click", x=150, y=150, button="right")
    seen = await act(link, box, "keyboard_up", key="Shift")
    assert "mousedown+shift2 mouseup+shift2" in seen.tree
    seen = await act(link, box, "mouse_dblclick", x=150, y=150, button="left")
    assert "dblclick0" in seen.tree
    assert "dblclick+shift" not in seen.tree
    await act(link, box, "mouse_click", x=150, y=310, button="left")
    await act(link, box, "keyboard_insert_text", text="über")
    seen = await act(link, box, "keyboard_type", text="x")
    assert "key:x" in seen.tree
    assert "key:ü" not in seen.tree
    assert ": überx" in seen.tree
    seen = await act(link, box, "keyboard_down", key="Nowhere")
    assert "there is no such key" in seen.error


async def test_files_of_the_task_are_uploaded_and_no_others(box: Sandbox) -> None:
    link, _ = await begin(box, worse=FILES)
    await box.write_file("browser/files/report.txt", b"all is well")
    seen = await go(link, box)
    field = bid(seen, 'button "File"')
    seen = await act(link, box, "upload_file", bid=field, file="report.txt")
    assert 'heading "report.txt: all is well"' in seen.tree
    for name in ("other.txt", "../static/index.html", "/etc/passwd"):
        seen = await act(link, box, "upload_file", bid=field, file=name)
        assert "there is no file" in seen.error
        assert "there are report.txt" in seen.error
    seen = await act(link, box, "upload_file", bid=bid(seen, 'textbox "Other"'), file="report.txt")
    assert "it is no field that takes files" in seen.error
    assert "no element" in (await act(link, box, "upload_file", bid="e999", file="report.txt")).error


async def test_downloads_are_kept_in_the_box_by_harmless_names(box: Sandbox) -> None:
    link, _ = await begin(box, worse=FILES)
    await box.write_file("browser/static/static.bin", bytes(1000))
    await box.write_file("browser/static/large.bin", bytes(9 << 20))
    seen = await go(link, box)
    for name, told in (
        ("Take", "downloaded 'note.txt', 5 bytes"),
        ("Take", "downloaded 'note-2.txt', 5 bytes"),
    ):
        seen = await act(link, box, "click", bid=bid(seen, f'link "{name}"'), button="left", modifiers=[])
        assert told in seen.notes
        assert seen.error == ""
    seen = await act(link, box, "click", bid=bid(seen, 'link "Evil"'), button="left", modifiers=[])
    (told,) = seen.notes
    assert told.endswith("1000 bytes")
    seen = await act(link, box, "goto", url="http://hostile.test/large.bin")
    assert "and was not kept" in " ".join(seen.notes), seen
    kept = {entry.path: entry.size for entry in await box.list_files("browser/downloads")}
    assert sorted(kept.values()) == [5, 5, 1000]
    assert await box.read_file("browser/downloads/note.txt") == b"hello"
    assert not [entry for entry in await box.list_files("browser") if "evil" in entry.path]
    assert 'heading "Calm"' in (await go(link, box, "index")).tree
