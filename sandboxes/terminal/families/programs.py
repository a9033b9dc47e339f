"""The programs that run, or are run, in tasks about processes, as the agent finds them in the task's folder.

Each reads a line from its standard input first: a secret that is nowhere in the box's files, and which it gives away
when it is treated as the task wants. So the grade sees in files what was done to a process.
"""

from __future__ import annotations

import hashlib

__all__ = ["DAEMON", "HOLDER", "KEEPER", "PAINTER", "PRODUCER", "SERVER", "VIEWER", "WORKER", "proof"]


def proof(secret: str, text: str) -> str:
    """Return what a program that knows `secret` writes to confirm `text`."""
    return hashlib.blake2b(f"{secret} {text}".encode(), digest_size=6).hexdigest()


_PROOF = """\
def proof(text):
    return hashlib.blake2b(f"{secret} {text}".encode(), digest_size=6).hexdigest()
"""

WORKER = b'''\
"""python3 worker.py NAME ...: works until it gets the signal TERM, then writes receipts/NAME.txt."""
import os
import signal
import sys

name = sys.argv[1]
secret = sys.stdin.readline().strip()


def stop(number, frame):
    with open(f"receipts/.{name}", "w") as file:
        file.write(f"{secret}\\n")
    os.rename(f"receipts/.{name}", f"receipts/{name}.txt")
    os._exit(0)


signal.signal(signal.SIGTERM, stop)
print("up", flush=True)
while True:
    signal.pause()
'''

KEEPER = b'''\
"""Starts the workers of workers.txt and notes in keeper.log when one has ended."""
import json
import os
import subprocess
import sys

secrets = json.loads(sys.stdin.readline())
running = {}
for line in open("workers.txt"):
    words = line.split()
    name = words[2]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdin.write(f"{secrets[name]}\\n")
    child.stdin.close()
    child.stdout.readline()
    running[child.pid] = name
    if "--quiet" not in words:
        with open(f"run/{name}.pid", "w") as file:
            file.write(f"{child.pid}\\n")
with open("keeper.new", "w") as log:
    log.write("all workers are up\\n")
os.rename("keeper.new", "keeper.log")
while running:
    pid, status = os.wait()
    with open("keeper.log", "a") as log:
        log.write(f"{running.pop(pid)} ended: {os.waitstatus_to_exitcode(status)}\\n")
'''

DAEMON = f'''\
"""Reads daemon.conf when it starts, and again at the signal HUP; tells in state.txt what it goes by.

Answers each line of its standard input with a signed line about that.
"""
import hashlib
import os
import signal
import sys

secret = sys.stdin.readline().strip()
reloads = 0


{_PROOF}

def load():
    global told
    level = open("daemon.conf").read().partition("level = ")[2].split()[0]
    told = f"level={{level}} reloads={{reloads}}"
    with open("state.new", "w") as file:
        file.write(f"{{told}} proof={{proof(told)}}\\n")
    os.rename("state.new", "state.txt")


def reload(number, frame):
    global reloads
    reloads += 1
    load()


signal.signal(signal.SIGHUP, reload)
with open("daemon.pid", "w") as file:
    file.write(f"{{os.getpid()}}\\n")
load()
for line in sys.stdin:
    word = line.strip()
    print(word, proof(f"{{word}} {{told}}"), flush=True)
'''.encode()

HOLDER = b'''\
"""python3 holder.py FILE NAME: holds a lock on FILE until it gets the signal TERM, then writes receipts/NAME.txt."""
import fcntl
import os
import signal
import sys

path, name = sys.argv[1:]
secret = sys.stdin.readline().strip()
file = open(path, "a")
fcntl.flock(file, fcntl.LOCK_EX)


def stop(number, frame):
    with open(f"receipts/.{name}", "w") as receipt:
        receipt.write(f"{secret}\\n")
    os.rename(f"receipts/.{name}", f"receipts/{name}.txt")
    os._exit(0)


signal.signal(signal.SIGTERM, stop)
os.close(os.open(f"run/{name}.up", os.O_CREAT))
while True:
    signal.pause()
'''

PRODUCER = f'''\
"""python3 producer.py COUNT: writes COUNT lines into the named pipe outbox, and ends."""
import hashlib
import os
import sys

secret = sys.stdin.readline().strip()


{_PROOF}

os.close(os.open("producer.up", os.O_CREAT))
with open("outbox", "w") as pipe:
    for number in range(int(sys.argv[1])):
        pipe.write(f"{{number}} {{proof(number)}}\\n")
'''.encode()

PAINTER = b'''\
"""python3 painter.py PAGE: paints pages/PAGE.txt when the signal CONT reaches it."""
import os
import signal
import sys

page = sys.argv[1]
secret = sys.stdin.readline().strip()


def paint(number, frame):
    with open(f"pages/.{page}", "w") as file:
        file.write(f"{page} {secret}\\n")
    os.rename(f"pages/.{page}", f"pages/{page}.txt")
    os._exit(0)


signal.signal(signal.SIGCONT, paint)
os.close(os.open(f"run/{page}.up", os.O_CREAT))
if os.environ.get("HALT"):
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    signal.pause()
'''

VIEWER = f'''\
"""python3 viewer.py COUNT: wrote report.txt and still has it open."""
import hashlib
import os
import signal
import sys

secret = sys.stdin.readline().strip()


{_PROOF}

report = open("report.txt", "w+")
for number in range(int(sys.argv[1])):
    report.write(f"{{number}} {{proof(number)}}\\n")
report.flush()
os.unlink("report.txt")
os.close(os.open("viewer.up", os.O_CREAT))
while True:
    signal.pause()
'''.encode()

SERVER = f'''\
"""python3 server.py NAME: serves until it gets the signal TERM; then it adds a line to shutdown.log."""
import hashlib
import os
import signal
import sys

name = sys.argv[1]
secret = sys.stdin.readline().strip()


{_PROOF}

def stop(number, frame):
    before = open("shutdown.log").read() if os.path.exists("shutdown.log") else ""
    with open("shutdown.log", "a") as log:
        log.write(f"{{name}} {{proof(before + name)}}\\n")
    os.unlink(f"run/{{name}}.pid")
    os._exit(0)


signal.signal(signal.SIGTERM, stop)
with open(f"run/{{name}}.new", "w") as file:
    file.write(f"{{os.getpid()}}\\n")
os.rename(f"run/{{name}}.new", f"run/{{name}}.pid")
while True:
    signal.pause()
'''.encode()
