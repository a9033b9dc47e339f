"""What an episode leaves in its browser and box is not in the next one, kind by kind, by what a page itself can see."""

from __future__ import annotations

import pytest
from driving import HOST, act, bid, go

from rock_env.backends.pool import PooledBackend
from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from sandboxes.browser import ENV
from sandboxes.browser.link import Link
from sandboxes.browser.reply import Reply

pytestmark = pytest.mark.timeout(300)
PAGE = """<title>Kinds</title><button onclick="leave()">Leave</button><button onclick="look()">Look</button>
<label>Source <input id=source value="secret-clipboard"></label><label>Target <input id=target></label>
<a href="data:text/plain,secret" download="secret.txt">Take</a><ul id=found></ul><script>
const opened = () => new Promise((done, failed) => {
  const asked = indexedDB.open("kept", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("things");
  asked.onsuccess = () => done(asked.result);
  asked.onerror = () => failed(asked.error);
});
const tell = found => { document.getElementById("found").innerHTML =
  Object.entries(found).map(([kind, value]) => `<li>${kind} is ${value}</li>`).join(""); };
async function leave() {
  document.cookie = "kept=secret; max-age=86400";
  localStorage.setItem("kept", "secret");
  sessionStorage.setItem("kept", "secret");
  history.pushState({}, "", "?kept");
  window.name = "secret";
  const database = await opened();
  const write = database.transaction("things", "readwrite");
  write.objectStore("things").put("secret", "kept");
  await new Promise(done => { write.oncomplete = done; });
  look();
}
async function look() {
  const read = (await opened()).transaction("things").objectStore("things").get("kept");
  await new Promise(done => { read.onsuccess = done; });
  tell({
    cookie: document.cookie || "nothing",
    local: localStorage.getItem("kept") ?? "nothing",
    session: sessionStorage.getItem("kept") ?? "nothing",
    indexed: read.result ?? "nothing",
    name: window.name || "nothing",
    history: history.length,
    caches: typeof caches,
    workers: typeof navigator.serviceWorker,
    clipboard: typeof navigator.clipboard,
  });
}
</script>"""
KINDS = ("cookie", "local", "session", "indexed", "name")


async def begun(box: Sandbox) -> tuple[Link, Reply]:
    request = {"site": "static", "host": HOST, "start": "/index.html", "seed": "", "most_tree": 20_000}
    return await Link.start(
        box, request, {"static/index.html": PAGE.encode(), "static/other.html": b"<h1>Other</h1>"}
    )


async def click(link: Link, box: Sandbox, seen: Reply, what: str) -> Reply:
    seen = await act(link, box, "click", bid=bid(seen, what), button="left", modifiers=[])
    return await act(link, box, "noop", wait_ms=200)


async def pasted(link: Link, box: Sandbox, seen: Reply) -> str:
    """Paste into the empty field and return what it then has."""
    await act(link, box, "focus", bid=bid(seen, 'textbox "Target"'))
    seen = await act(link, box, "keyboard_press", key="Control+v")
    line = next(line for line in seen.tree.splitlines() if 'textbox "Target"' in line)
    return line.partition("]: ")[2] or line.rpartition(": ")[2] if "secret" in line else ""


async def test_nothing_of_an_episode_is_in_the_next_of_the_same_pool(backend: ProcessBackend) -> None:
    assert ENV.sandbox is not None
    pool = PooledBackend(backend)
    histories = []
    for episode in range(2):
        box = await pool.create(ENV.sandbox, sandbox_id=f"episode-{episode}")
        link, seen = await begun(box)
        seen = await click(link, box, seen, 'button "Look"')
        for kind in KINDS:
            assert f"{kind} is nothing" in seen.tree, f"{kind} in episode {episode}"
        histories.append([line.strip() for line in seen.tree.splitlines() if "history is" in line])
        assert await pasted(link, box, seen) == "", "the clipboard is empty"
        back = await act(link, box, "go_back")
        assert not back.tabs[0][1].endswith("?kept")
        listed = {entry.path for entry in await box.list_files("browser", recursive=True)}
        assert not any("downloads" in path for path in listed)

        seen = await go(link, box, "index")
        seen = await click(link, box, seen, 'button "Leave"')
        for kind in KINDS:
            assert f"{kind} is " in seen.tree
            assert f"{kind} is nothing" not in seen.tree, f"{kind} can be kept at all"
        await act(link, box, "focus", bid=bid(seen, 'textbox "Source"'))
        await act(link, box, "keyboard_press", key="Control+a")
        seen = await act(link, box, "keyboard_press", key="Control+c")
        assert "secret" in await pasted(link, box, seen), "what is copied can be pasted in the same episode"
        seen = await act(link, box, "click", bid=bid(seen, 'link "Take"'), button="left", modifiers=[])
        assert any("downloaded" in note for note in seen.notes)
        await box.close()
    assert histories[0] == histories[1]
    await pool.close()


async def test_a_site_has_no_caches_and_no_workers_of_its_own(box: Sandbox) -> None:
    """Sites have no TLS, so pages are no secure contexts: Cache Storage, service workers and clipboard API are absent."""
    link, seen = await begun(box)
    seen = await click(link, box, seen, 'button "Look"')
    for kind in ("caches", "workers", "clipboard"):
        assert f"{kind} is undefined" in seen.tree, seen.tree
