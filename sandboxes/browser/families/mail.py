"""Tasks at the mailbox."""

from __future__ import annotations

from sandboxes.browser.scenario import (
    On,
    SiteDraw,
    SiteScenario,
    SiteTemplate,
    State,
    Step,
    address,
    expecting,
    say,
)

__all__ = ["TEMPLATES"]


def _site(draw: SiteDraw) -> State:
    chance = draw.chance
    owner, *others = (address(person) for person in draw.people(5))
    mails = [
        {
            "id": number,
            "folder": "inbox",
            "from": chance.choice(others),
            "to": owner,
            "subject": f"{word.title()} {thing}",
            "date": f"2026-02-{10 + number}",
            "body": f"Good day,\nthe {thing} costs {chance.randint(10, 99)} euros.\nCode: {chance.randint(1000, 9999)}",
            "starred": False,
        }
        for number, (word, thing) in enumerate(zip(draw.words(8), draw.things(8), strict=True), start=1)
    ]
    return {"owner": owner, "today": "2026-03-02", "mails": mails}


def _sent(state: State, to: str, subject: str, body: str) -> State:
    return {
        "id": 9,
        "folder": "sent",
        "from": state["owner"],
        "to": to,
        "subject": subject,
        "date": "2026-03-02",
        "body": body,
        "starred": False,
    }


def _reply(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    mail = draw.chance.choice(state["mails"])
    body = f"Please send it to {draw.words(1)[0].title()} Street {draw.chance.randint(1, 99)}."
    new = _sent(state, mail["from"], f"Re: {mail['subject']}", body)
    steps: list[Step] = [
        On("click", "link", mail["subject"]),
        On("click", "link", "Reply"),
        On("fill", "textbox", "Text", f'"{body}"'),
        On("click", "button", "Send"),
        say("done"),
    ]
    goal = f'Reply to the mail "{mail["subject"]}" with exactly this text: {body}'
    return SiteScenario("mail", goal, state, expecting(state, lambda s: s["mails"].append(new)), steps)


def _forward(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    mail, to = draw.chance.choice(state["mails"]), f"{draw.words(1)[0]}@example.org"
    new = _sent(state, to, f"Fwd: {mail['subject']}", mail["body"])
    steps: list[Step] = [
        On("click", "link", mail["subject"]),
        On("click", "link", "Forward"),
        On("fill", "textbox", "To", f'"{to}"'),
        On("click", "button", "Send"),
        say("done"),
    ]
    goal = f'Forward the mail "{mail["subject"]}" to {to}, without changing its text.'
    return SiteScenario("mail", goal, state, expecting(state, lambda s: s["mails"].append(new)), steps)


def _tidy(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    first, second = sorted(draw.chance.sample(range(8), 2))
    for number, mail in enumerate(state["mails"]):
        mail["from"] = "shop@example.org" if number in (first, second) else mail["from"]
    steps: list[Step] = []
    for number in (first, second):
        steps += [
            On("click", "link", state["mails"][number]["subject"]),
            On("select_option", "combobox", "Folder", '"receipts"'),
            On("click", "button", "Move"),
        ]

    def change(state: State) -> None:
        for number in (first, second):
            state["mails"][number]["folder"] = "receipts"

    goal = "Move both mails from shop@example.org out of the inbox into the folder receipts."
    return SiteScenario("mail", goal, state, expecting(state, change), [*steps, say("done")])


def _code(draw: SiteDraw) -> SiteScenario:
    state = _site(draw)
    number = draw.chance.randrange(8)
    mail = state["mails"][number]
    code = mail["body"].rpartition(" ")[2]
    steps: list[Step] = [
        On("click", "link", mail["subject"]),
        On("click", "button", "Add star"),
        On("click", "button", "Delete"),
        say(f"The code is {code}."),
    ]
    goal = (
        f'Tell the user the code in the mail "{mail["subject"]}". Star this mail first, and then delete it.'
    )
    change = {"starred": True, "folder": "trash"}
    return SiteScenario(
        "mail", goal, state, expecting(state, lambda s: s["mails"][number].update(change), code), steps
    )


TEMPLATES = (
    SiteTemplate("mail-reply", "mail", "train", _reply),
    SiteTemplate("mail-forward", "mail", "train", _forward),
    SiteTemplate("mail-tidy", "mail", "train", _tidy),
    SiteTemplate("mail-code", "mail", "held_out", _code),
)
