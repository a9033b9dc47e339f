"""What `ale console` takes: to list and open large runs, to show a step that was written, and of the run that it watches.

`python -m benchmarks.console [--quick]`. A run of 10,240 rollouts lies in a scratch folder, and a console serves it in a
process of its own. The last line is one JSON object:

- `list_10k_ms`: the first window of all rollouts, newest first, median (goal: under 1,000);
- `list_10k_first_ms`: the same before any row is kept: every record is read, over as many answers as it takes;
- `open_ms`: one rollout in the middle, median (goal: under 300);
- `first_paint_ms`: Chromium's first contentful paint of the run's page; null without a browser (goal: under 1,000);
- `browse_mb`: the server's peak memory after listing, searching, the grid and 100 rollouts (goal: under 300);
- `live_update_ms`: from a step's file to the event that tells the page, median (goal: under 1,000);
- `training_cost`: the server's processor time while one page watches an idle run, as a share of one core.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from agent_runtime.store import read_segment, segment_path, write_segment
from benchmarks.replay import EACH, FILES, KEPT, write_run
from benchmarks.scaffold import finish, parser_of, say, seconds_of

CHROMIUM = Path("/usr/lib/chromium/chromium")


def started(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a console over a run; return its process and its address."""
    words = [sys.executable, "-m", "ale", "console", str(folder), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip().rstrip("/")


def status_of(pid: int, name: str) -> int:
    """Return a number of a process's status, kB."""
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def processor_s(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def milliseconds(asks: httpx.Client, path: str, times: int, **asked: Any) -> float:
    """Return the median time of a request."""
    return 1000 * median(
        seconds_of(lambda: asks.get(path, params=asked).raise_for_status()) for _ in range(times)
    )


def first_listing_ms(asks: httpx.Client) -> float:
    begun = time.perf_counter()
    while asks.get("/api/runs/run/rollouts").json()["left"]:
        pass
    return 1000 * (time.perf_counter() - begun)


def live_ms(asks: httpx.Client, folder: Path, times: int) -> float:
    """Return the median time from a step's file to the event."""
    plain, took = next(iter(read_segment(KEPT))), []
    with asks.stream("GET", "/api/runs/run/events") as events:
        lines = (line for line in events.iter_lines() if line.startswith("data"))
        next(lines)
        for number in range(times):
            time.sleep(0.1 * number)  # at another moment between two looks each time
            write_segment(
                segment_path(folder, "step", FILES + 1 + number), [replace(plain, id=f"live-{number}")]
            )
            begun = time.perf_counter()
            next(lines)
            took.append(1000 * (time.perf_counter() - begun))
    return median(took)


def watched_share(asks: httpx.Client, pid: int, seconds: float) -> float:
    """Return the processor time of a server whose one page watches an idle run, as a share of one core."""
    with asks.stream("GET", "/api/runs/run/events") as events:
        next(events.iter_lines())
        begun = processor_s(pid)
        time.sleep(seconds)
        return (processor_s(pid) - begun) / seconds


def browse(asks: httpx.Client) -> None:
    """Do what a person does who looks around."""
    start: int | None = 0
    while start is not None and start < 5000:
        start = asks.get("/api/runs/run/rollouts", params={"text": "no such text", "start": start}).json()[
            "next"
        ]
    asks.get("/api/runs/run/grid").raise_for_status()
    for number in range(100):
        asks.get("/api/runs/run/rollout", params={"id": f"000007-{number:04d}"}).raise_for_status()


def first_paint_ms(address: str) -> float | None:
    """Return the first contentful paint of the run's page; None where there is no browser."""
    if not CHROMIUM.exists() or find_spec("playwright") is None:
        say(
            "no first paint: it needs Chromium and Playwright (tests/browser/conftest.py says how to get them)"
        )
        return None
    script = (
        "import sys\nfrom playwright.sync_api import sync_playwright\nwith sync_playwright() as p:\n"
        f" b = p.chromium.launch(executable_path={str(CHROMIUM)!r}, args=['--no-sandbox', '--disable-gpu'])\n"
        f" page = b.new_page(); page.goto({address + '/#/run/run'!r}); page.wait_for_selector('.list .row')\n"
        " print(page.evaluate(\"performance.getEntriesByName('first-contentful-paint')[0].startTime\")); b.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    options = parser_of(__doc__, quick="fewer repetitions").parse_args()
    times = 5 if options.quick else 25
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        write_run(folder)
        (folder / "metrics.jsonl").write_text(
            "".join(
                f"{json.dumps({'step': step, 'kind': 'train', 'success': 0.5})}\n" for step in range(FILES)
            )
        )
        process, address = started(folder)
        try:
            with httpx.Client(base_url=address, timeout=60) as asks:
                found = {
                    "rollouts": FILES * EACH,
                    "list_10k_first_ms": first_listing_ms(asks),
                    "list_10k_ms": milliseconds(asks, "/api/runs/run/rollouts", times, sort="newest"),
                    "open_ms": milliseconds(
                        asks, "/api/runs/run/rollout", times, id=f"{FILES // 2:06d}-0000"
                    ),
                    "first_paint_ms": first_paint_ms(address),
                    "live_update_ms": live_ms(asks, folder, times),
                    "training_cost": watched_share(asks, process.pid, 3 if options.quick else 20),
                }
                browse(asks)
                found["browse_mb"] = status_of(process.pid, "VmHWM") / 1000
        finally:
            process.terminate()
            process.wait()
    return finish({name: value if value is None else round(value, 4) for name, value in found.items()})


if __name__ == "__main__":
    sys.exit(main())
