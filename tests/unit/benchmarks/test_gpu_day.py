"""`benchmarks.gpu_day`: a part that raises, dies or hangs takes no other, a run that is cut off leaves its lines."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from benchmarks.chips import CHIPS, rates_of
from benchmarks.gpu_day import PARTS

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, os, sys, time
from pathlib import Path
from benchmarks.parts import Part, run_parts

def works(about, seconds):
    yield "told", lambda: {"about": about, "pid": os.getpid()}

def raises(about, seconds):
    yield "first", lambda: {"one": 1}
    yield "bad", lambda: {"two": 1 / 0}
    yield "last", lambda: print("not JSON") or {"three": 3}
    raise RuntimeError("between pieces")

def dies(about, seconds):
    yield "first", lambda: {"one": 1}
    os._exit(7)

def hangs(about, seconds):
    yield "first", lambda: {"pid": os.getpid()}
    time.sleep(3600)

if __name__ == "__main__":
    most = {name: float(seconds) for name, seconds in map(lambda word: word.split("="), sys.argv[2:])}
    parts = {name: Part("day_of_test:" + name, seconds) for name, seconds in most.items()}
    print(json.dumps(run_parts(parts, "a day", seconds=1000, out=Path(sys.argv[1]))))
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "day_of_test.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "day_of_test.py"), str(folder / "out"), *words]
    path = os.pathsep.join([str(folder), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_part_that_raises_dies_or_hangs_takes_no_other(tmp_path):
    said, _ = started(tmp_path, "raises=100", "dies=100", "hangs=10", "late=1", "works=100").communicate()
    *each, last = lines(said)
    assert [line.pop("name") for line in each] == ["raises", "dies", "hangs", "late", "works"]
    assert each == list(last.values()), "the last line has all parts"
    raises, dies, hangs, late, works = each
    assert not any(part["ok"] for part in (raises, dies, hangs, late))
    assert (raises["first"], raises["last"]) == ({"one": 1}, {"three": 3})
    assert "ZeroDivisionError" in raises["bad"]["failed"]
    assert raises["error"] == "failed: bad, between pieces"
    assert (dies["first"], dies["error"]) == ({"one": 1}, "its process ended with 7")
    assert "ended at its limit of 10 s" in hangs["error"]
    assert not Path(f"/proc/{hangs['first']['pid']}").exists()
    assert "no time left" in late["error"]
    assert works["ok"]
    assert works["told"]["about"] == "a day"


async def test_a_run_that_is_cut_off_leaves_its_lines_and_no_process(tmp_path):
    run = started(tmp_path, "works=100", "hangs=600")
    out = tmp_path / "out"
    await until(lambda: out.exists() and '"name": "hangs"' in out.read_text())
    run.send_signal(signal.SIGKILL)
    said, _ = run.communicate()
    assert [line["name"] for line in lines(said)] == ["works"]
    piece, whole, begun = lines(out.read_text())
    assert (piece["name"], whole["name"], whole["ok"]) == ("works", "works", True)
    await until(lambda: not Path(f"/proc/{begun['first']['pid']}").exists())


def test_a_device_has_the_rates_of_its_own_chip():
    assert rates_of("NVIDIA H200") == CHIPS["H200"]
    assert rates_of("NVIDIA H100 80GB HBM3") == CHIPS["H100"]
    assert rates_of("NVIDIA H100 PCIe") == CHIPS["H100 PCIe"]
    assert rates_of("NVIDIA A100-SXM4-40GB") == CHIPS["A100"]
    assert rates_of("NVIDIA L40S") == CHIPS["L40S"]
    assert rates_of("NVIDIA GH200 480GB") is None


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.turn(1)
@pytest.mark.timeout(900)
def test_every_part_of_a_dry_run_ends_well(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu_day", "--dry-run", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    *each, last = lines(done.stdout)
    assert (done.returncode, last["failed"]) == (0, []), done.stderr
    assert [line["name"] for line in each] == list(PARTS)
    assert [line for line in lines((tmp_path / "out").read_text()) if "ok" in line] == each
    assert last["learner"]["qwen3_lora"]["packed_loss_apart"] < 1e-3
    assert last["weights"]["lora"]["arrived"]
    assert last["ranks"]["fsdp2"]["difference"] < 1e-5
    assert last["smollm2"]["run"]["steps"] == 2
