"""Tasks in a real browser: small sites that come along, and MiniWoB++; graded by the state left. See README.md."""

from rock_env.spec import EnvSpec, Picture, Resources, SandboxSpec
from sandboxes.browser.catalog import make_tasks
from sandboxes.browser.env import make
from sandboxes.browser.link import DRIVER
from sandboxes.browser.oracle import make_oracle, optimum
from sandboxes.browser.params import BrowserParams

__all__ = ["ENV"]

ENV = EnvSpec(
    name="browser",
    version="0.2",
    summary="Use a web browser: forms, tables, mail, a calendar, files, a wiki; graded by the site's state.",
    params=BrowserParams,
    factory=make,
    tasks=make_tasks,
    oracle=make_oracle,
    optimum=optimum,
    sandbox=SandboxSpec(
        resources=Resources(memory_bytes=2 << 30, disk_bytes=512 << 20, pids=1024),
        env=(
            ("LC_ALL", "C.UTF-8"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("TZ", "UTC"),
        ),
        ready=DRIVER,
    ),
    picture=Picture("page"),
)
