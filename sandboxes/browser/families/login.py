"""Tasks at the customer portal."""

from __future__ import annotations

from sandboxes.browser.scenario import On, SiteDraw, SiteScenario, SiteTemplate, State, Step, expecting, say

__all__ = ["TEMPLATES"]


def _site(draw: SiteDraw) -> tuple[State, str, str]:
    """Return the portal, and the user and password of a task."""
    chance = draw.chance
    users = {}
    for person, word in zip(draw.people(3), draw.words(3), strict=True):
        users[person.split()[0].lower()] = {
            "display": person,
            "password": f"{word}-{chance.randint(1000, 9999)}",
            "city": draw.words(1)[0].title(),
            "language": chance.choice(("English", "German")),
            "newsletter": True,
            "two_factor": False,
            "last_login": f"{chance.randint(1, 28)} February 2026",
            "failures": 0,
            "devices": [f"{thing} {number}" for number, thing in enumerate(draw.things(3), start=1)],
            "invoices": [
                [f"R-{chance.randint(10_000, 99_999)}", f"{chance.randint(10, 99)}.50", state]
                for state in chance.sample(["paid", "paid", "open"], 3)
            ],
        }
    name = chance.choice(sorted(users))
    return {"users": users, "logged_in": ""}, name, str(users[name]["password"])


def _enter(name: str, password: str) -> list[Step]:
    return [
        On("fill", "textbox", "User name", f'"{name}"'),
        On("fill", "textbox", "Password", f'"{password}"'),
        On("click", "button", "Log in"),
    ]


def _told(name: str, password: str) -> str:
    return f"Log in as {name} with the password {password}"


def _password(draw: SiteDraw) -> SiteScenario:
    state, name, old = _site(draw)
    new = f"{draw.words(1)[0]}-{draw.chance.randint(10_000, 99_999)}"
    steps: list[Step] = [
        *_enter(name, old),
        On("click", "link", "Password"),
        On("fill", "textbox", "Old password", f'"{old}"'),
        On("fill", "textbox", "New password", f'"{new}"'),
        On("fill", "textbox", "Repeat new password", f'"{new}"'),
        On("click", "button", "Change password"),
        On("click", "button", "Log out"),
        say("done"),
    ]
    goal = f"{_told(name, old)}, change the password to {new}, and log out."
    return SiteScenario(
        "login", goal, state, expecting(state, lambda s: s["users"][name].update(password=new)), steps
    )


def _newsletter(draw: SiteDraw) -> SiteScenario:
    state, name, password = _site(draw)

    def change(state: State) -> None:
        state["users"][name].update(newsletter=False, two_factor=True)
        state["logged_in"] = name

    steps: list[Step] = [
        *_enter(name, password),
        On("click", "link", "Profile"),
        On("uncheck", "checkbox", "Newsletter"),
        On("check", "checkbox", "Two-factor login"),
        On("click", "button", "Save profile"),
        say("done"),
    ]
    goal = f"{_told(name, password)}, end the newsletter, and switch two-factor login on. Stay logged in."
    return SiteScenario("login", goal, state, expecting(state, change), steps)


def _invoice(draw: SiteDraw) -> SiteScenario:
    state, name, password = _site(draw)
    number = next(each[0] for each in state["users"][name]["invoices"] if each[2] == "open")
    steps: list[Step] = [*_enter(name, password), On("click", "button", "Log out"), say(f"{number} is open")]
    goal = f"{_told(name, password)}, find the number of the open invoice, log out, and tell the user the number."
    return SiteScenario("login", goal, state, expecting(state, lambda s: None, number), steps)


def _device(draw: SiteDraw) -> SiteScenario:
    state, name, password = _site(draw)
    device = draw.chance.choice(state["users"][name]["devices"])

    def change(state: State) -> None:
        state["users"][name]["devices"].remove(device)
        state["logged_in"] = name

    steps: list[Step] = [
        *_enter(name, password),
        On("click", "link", "Devices"),
        'on_dialog("accept")',
        On("click", "button", "Sign out", after=device),
        say("done"),
    ]
    goal = f"{_told(name, password)}, and sign the device {device} out. Stay logged in yourself."
    return SiteScenario("login", goal, state, expecting(state, change), steps)


TEMPLATES = (
    SiteTemplate("login-password", "login", "train", _password),
    SiteTemplate("login-newsletter", "login", "train", _newsletter),
    SiteTemplate("login-invoice", "login", "train", _invoice),
    SiteTemplate("login-device", "login", "held_out", _device),
)
