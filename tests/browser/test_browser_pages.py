"""What the driver sees in a page, what it does to elements, and what it waits for: pages of every kind of element."""

from __future__ import annotations

import re

import pytest
from driving import act, begin, bid, click, go

from rock_env.sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)

KINDS = """<title>Kinds</title>
<nav aria-label="Main"><a href="/a">One <b>thing</b></a> <a>no link</a></nav>
<h2>A&nbsp; title</h2><p>Some <em>text</em> here</p><p hidden>gone</p><div style="display:none">gone</div>
<img src="x" alt="A picture"><img src="x" alt=""><span aria-hidden="true">decor</span>
<label>Name <input name="parentNode" value="Ada"></label><input type="submit"><input placeholder="Town">
<label for="c">Agree</label><input id="c" type="checkbox" checked><input type="radio" disabled aria-label="Off">
<select aria-label="Size"><option>S</option><option selected>M</option></select><textarea aria-label="Long">a
b</textarea>
<button aria-expanded="true" aria-pressed="mixed"><span>Do</span></button><button title="Help"></button>
<table><caption>Prices</caption><tr><th>Item<th>Price<tr><td>Lamp<td><button>Buy</button></table>
<ul role="listbox"><li role="option" aria-selected="true">First</ul>
<details><summary>More</summary><p>inside</p></details>
<style>.star::before { content: "* " }</style><p class="star">starred</p>
<div id="host"></div><script>host.attachShadow({mode: 'open'}).innerHTML = '<button>Deep</button>'</script>
<iframe srcdoc="<button>Framed</button>" width="200" height="60"></iframe>"""
SEEN = """\
- generic:
  - navigation "Main":
    - link "One thing":
      - /url: /a
    - text: no link
  - heading "A title" [level=2]
  - paragraph:
    - text: Some
    - emphasis: text
    - text: here
  - img "A picture"
  - text: decor
  - generic:
    - text: Name
    - textbox "Name": Ada
  - button "Submit"
  - textbox "Town"
  - text: Agree
  - checkbox "Agree" [checked]
  - radio "Off" [disabled]
  - combobox "Size":
    - option "S"
    - option "M" [selected]
  - textbox "Long": a b
  - button "Do" [expanded] [pressed=mixed]
  - button "Help"
  - table "Prices":
    - caption: Prices
    - rowgroup:
      - row:
        - columnheader "Item"
        - columnheader "Price"
      - row:
        - cell "Lamp"
        - cell:
          - button "Buy"
  - listbox:
    - option "First" [selected]
  - group:
    - generic: More
  - paragraph: * starred
  - button "Deep"
  - iframe:
    - button "Framed\""""


async def test_every_kind_of_element_is_seen(box: Sandbox) -> None:
    link, _ = await begin(box, worse=KINDS)
    seen = await go(link, box)
    assert re.sub(r" \[ref=\w+\]", "", seen.tree) == SEEN


CLICKED = "onclick='document.title += this.textContent[0]'"
ACTED = f"""<title>T</title><button {CLICKED}>Down</button><div style="height:3000px"></div>
<button {CLICKED}>Far</button><iframe srcdoc="<button onclick='top.document.title += `I`'>In</button>"></iframe>
<button disabled>Off</button><button style="position:relative;width:80px;height:30px">Under<i
style="position:absolute;inset:0;z-index:2"></i></button><div style="position:relative"><button>Cover</button><p
style="position:absolute;inset:0;margin:0">over</p></div>
<input aria-label="Text"><input aria-label="Fixed" readonly value="f"><input type="date" aria-label="Day">
<input type="checkbox" aria-label="Box"><input type="checkbox" aria-label="Stuck" onclick="return false">
<select aria-label="Pick"><option value="1">One</option><option>Two</option></select>"""


async def test_actions_do_what_they_say_or_tell_why_not(box: Sandbox) -> None:
    link, _ = await begin(box, worse=ACTED)
    seen = await go(link, box)
    first = seen
    for name in ("Far", "Down", "In", "Under"):
        seen = await click(link, box, seen, f'button "{name}"')
        assert seen.error == ""
    assert seen.tabs[0][0] == "TFDI"
    for what, op, args, error in (
        ('button "Off"', "click", {"button": "left", "modifiers": []}, "it is disabled"),
        ('button "Cover"', "click", {"button": "left", "modifiers": []}, "another element covers it"),
        ('textbox "Fixed"', "fill", {"value": "x"}, "it is read-only"),
        ('textbox "Day"', "fill", {"value": "soon"}, "its type of field does not take this text"),
        ('button "Down"', "fill", {"value": "x"}, "it is no field that takes text"),
        ('checkbox "Stuck"', "check", {}, "it stays as it is"),
        ('button "Down"', "check", {}, "it is no check box or radio button"),
        (
            'combobox "Pick"',
            "select_option",
            {"options": "Three"},
            "has no option 'Three'; it has 'One', 'Two'",
        ),
        ('button "Down"', "press", {"key_comb": "Nokey"}, "there is no such key"),
    ):
        seen = await act(link, box, op, bid=bid(first, what), **args)
        assert error in seen.error
    for what, op, args, shown in (
        ('textbox "Text"', "fill", {"value": "héllo"}, "[active] [ref={}]: héllo"),
        ('textbox "Text"', "clear", {}, 'textbox "Text" [active] [ref={}]\n'),
        ('textbox "Day"', "fill", {"value": "2026-03-02"}, "[ref={}]: 2026-03-02"),
        ('checkbox "Box"', "check", {}, 'checkbox "Box" [checked] [active] [ref={}]'),
        ('checkbox "Box"', "uncheck", {}, 'checkbox "Box" [active] [ref={}]'),
        ('combobox "Pick"', "select_option", {"options": ["Two"]}, 'option "Two" [selected]'),
    ):
        seen = await act(link, box, op, bid=bid(first, what), **args)
        assert seen.error == ""
        assert shown.format(bid(first, what)) in seen.tree
    assert (await act(link, box, "click", bid="e999", button="left", modifiers=[])).error.startswith(
        "no element"
    )


LATE = """<title>Late</title><p id="p">waiting</p><button onclick="run()">Run</button>
<button onclick="window.open('/index.html')">Open</button><form action="/index.html"><button>Send</button></form>
<button onclick="setTimeout(() => location = '/index.html', 400)">Leave</button>
<a href="/index.html" target="_blank">Blank</a><script>
async function run() {
  for (let i = 0; i < 20; i++) { await (await fetch('/index.html?' + i)).text(); p.textContent = 'done ' + (i + 1); }
}
</script>"""


@pytest.mark.parametrize(
    ("what", "title", "tabs", "shown"),
    [
        ('button "Run"', "Late", 1, "done 20"),
        ('button "Send"', "Calm", 1, "Calm"),
        ('button "Leave"', "Calm", 1, "Calm"),
        ('button "Open"', "Calm", 2, "Calm"),
        ('link "Blank"', "Calm", 2, "Calm"),
    ],
)
async def test_what_an_action_began_is_waited_for(
    box: Sandbox, what: str, title: str, tabs: int, shown: str
) -> None:
    link, _ = await begin(box, worse=LATE)
    seen = await click(link, box, await go(link, box), what)
    assert (seen.tabs[seen.active][0], len(seen.tabs), seen.notes) == (title, tabs, ())
    assert shown in seen.tree
