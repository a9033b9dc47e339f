"""Processes: stop, reload, resume, free a lock, read from a pipe, recover an open file, limit and record how things end.

What the agent did to a process shows in files: the process writes a secret there that only it knew (see `programs`).
Which processes run on, and which have ended, is asked of the kernel (see `watch`).
"""

from __future__ import annotations

import json
from itertools import pairwise

from sandboxes.terminal.checks import Check, absent, keeps, text_is
from sandboxes.terminal.families import programs
from sandboxes.terminal.scenario import Scenario, Service, Template
from sandboxes.terminal.words import Draw

__all__ = ["TEMPLATES"]

_FIND = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2> /dev/null | grep -q '{}' && kill -{} ${{p#/proc/}}; done"


def _until(path: str) -> str:
    return f"until [ -e {path} ]; do sleep 0.1; done; cat {path}"


def _kept_workers(
    draw: Draw, workers: list[str], stopped: str
) -> tuple[dict[str, bytes], Service, tuple[Check, ...]]:
    """Return the files, the keeper of the workers (given by their command lines), and the checks that one was stopped."""
    names = [line.split()[2] for line in workers]
    secrets = {name: draw.code(name) for name in names}
    files = {
        "keeper.py": programs.KEEPER,
        "worker.py": programs.WORKER,
        "workers.txt": "".join(f"{line}\n" for line in workers).encode(),
    }
    checks = (
        text_is(f"receipts/{stopped}.txt", secrets[stopped]),
        # The keeper may not have noted it yet when everything is killed for the grade.
        text_is("keeper.log", up := "all workers are up", f"{up}\n{stopped} ended: 0", guard=True),
        *(absent(f"receipts/{name}.txt", guard=True) for name in names if name != stopped),
    )
    return files, Service(("python3", "keeper.py"), "keeper.log", json.dumps(secrets)), checks


def _fates(files: dict[str, bytes], stopped: str) -> dict[str, tuple[str, ...]]:
    """Return which processes go on and which ends, where one worker is stopped."""
    lines = files["workers.txt"].decode().splitlines()
    ends = tuple(line for line in lines if line.split()[2] == stopped)
    return {"goes_on": ("python3 keeper.py", *(line for line in lines if line not in ends)), "ends": ends}


def _stop_worker(draw: Draw) -> Scenario:
    names = draw.names("service", 4)
    stopped = names[draw.number(0, 3)]
    files, keeper, checks = _kept_workers(draw, [f"python3 worker.py {name}" for name in names], stopped)
    return Scenario(
        goal=f"Four workers run here; run/ has their process ids. Stop the worker {stopped} with the signal TERM, at "
        f"which it writes receipts/{stopped}.txt. The other workers and their keeper must go on.",
        files=files,
        setup="mkdir run receipts",
        services=(keeper,),
        **_fates(files, stopped),
        checks=checks,
        solution=(
            "bash cat workers.txt; ls run",
            f"bash kill -TERM $(cat run/{stopped}.pid); {_until(f'receipts/{stopped}.txt')}",
        ),
        shortcuts=(
            f"bash kill -KILL $(cat run/{stopped}.pid); echo stopped > receipts/{stopped}.txt; sleep 0.3",
            f"bash kill -TERM $(cat run/*.pid); {_until(f'receipts/{stopped}.txt')}; sleep 0.3",
        ),
    )


def _stop_by_argument(draw: Draw) -> Scenario:
    names, places = draw.names("service", 4), draw.names("place", 4)
    stopped, place = names[1], places[1]
    workers = [
        f"python3 worker.py {name} --quiet --region {where}"
        for name, where in zip(names, places, strict=True)
    ]
    workers[2] = f"python3 worker.py {names[2]} --quiet --region {places[2]} --after {place}"
    draw.rng.shuffle(workers)
    files, keeper, checks = _kept_workers(draw, workers, stopped)
    return Scenario(
        goal="Four workers run here (python3 worker.py NAME ...), each for the region that its command line names with "
        f"--region. Stop the one for the region {place} with the signal TERM, at which it writes receipts/NAME.txt. The "
        "others and their keeper must go on. There are no files with their process ids.",
        files=files,
        setup="mkdir receipts",
        services=(keeper,),
        **_fates(files, stopped),
        checks=checks,
        solution=(
            "bash cat workers.txt; ls run",
            f"bash {_FIND.format(f'^python3 worker.py .*--region {place}', 'TERM')}; {_until(f'receipts/{stopped}.txt')}",
        ),
        shortcuts=(
            f"bash {_FIND.format(f'^python3 worker.py .*{place}', 'TERM')}; {_until(f'receipts/{stopped}.txt')}; sleep 0.3",
            f"bash echo stopped > receipts/{stopped}.txt",
        ),
    )


def _reload_config(draw: Draw) -> Scenario:
    secret, (old, new) = draw.code("secret"), draw.rng.sample(range(1, 90), 2)
    color = draw.name("word")
    told = f"level={new} reloads=1"
    return Scenario(
        goal=f"A daemon runs here (daemon.py; its process id is in daemon.pid). Change level in daemon.conf from {old} to "
        f"{new}, leaving the rest of the file, and make the running daemon read it again with the signal HUP, once: it "
        "must not be restarted, and must not read the file more often than that. What it goes by is told in state.txt.",
        files={"daemon.py": programs.DAEMON, "daemon.conf": f"color = {color}\nlevel = {old}\n".encode()},
        services=(Service(("python3", "daemon.py"), "state.txt", secret, answer=told),),
        goes_on=("python3 daemon.py",),
        checks=(text_is("daemon.conf", f"color = {color}\nlevel = {new}"),),
        solution=(
            "bash cat daemon.conf",
            f"edit daemon.conf\n<<<<<<<\nlevel = {old}\n=======\nlevel = {new}\n>>>>>>>",
            f"bash kill -HUP $(cat daemon.pid); until grep -q '^{told} ' state.txt; do sleep 0.1; done; cut -c 1-20 "
            "state.txt",
        ),
        shortcuts=(
            f"bash sed -i 's/level = {old}/level = {new}/' daemon.conf; sed -i 's/{old} reloads=0/{new} reloads=1/' "
            "state.txt",
            f"bash kill -HUP $(cat daemon.pid); sleep 0.3; sed -i 's/level = {old}/level = {new}/' daemon.conf; kill -HUP "
            "$(cat daemon.pid); sleep 0.3",
        ),
    )


def _free_lock(draw: Draw) -> Scenario:
    names, words = draw.names("service", 3), draw.names("word", 8)
    places = ["queue.lock", *(f"{place}.lock" for place in draw.names("place", 2))]
    secrets = [draw.code(name) for name in names]
    number = draw.number(10, 99)
    drain = (
        "#!/bin/sh\n# Empties the queue into drained.txt, unless somebody else holds the lock.\nexec 9>> "
        "queue.lock\nflock -n 9 || { echo 'drain: queue.lock is held by another process' >&2; exit 75; }\nawk '{ "
        f"print NR * {number}, $1 }}' queue.txt > drained.txt\n: > queue.txt\n"
    )
    pattern = f"^python3 holder.py {places[0]} "
    order = [0, 1, 2]
    draw.rng.shuffle(order)
    return Scenario(
        goal="drain.sh should empty the queue (queue.txt) into drained.txt, but one of the processes here holds the lock "
        "on queue.lock. Find out which, stop it with the signal TERM, at which it writes a file in receipts/, and run "
        "drain.sh as it is. The other processes must go on.",
        files={
            "drain.sh": drain.encode(),
            "holder.py": programs.HOLDER,
            "queue.txt": "".join(f"{word}\n" for word in words).encode(),
        },
        setup="mkdir run receipts",
        services=tuple(
            Service(("python3", "holder.py", places[n], names[n]), f"run/{names[n]}.up", secrets[n])
            for n in order
        ),
        goes_on=tuple(f"python3 holder.py {places[n]} {names[n]}" for n in (1, 2)),
        ends=(f"python3 holder.py {places[0]} {names[0]}",),
        checks=(
            text_is("drained.txt", "\n".join(f"{n * number} {word}" for n, word in enumerate(words, 1))),
            text_is("queue.txt", ""),
            text_is(f"receipts/{names[0]}.txt", secrets[0]),
            *(absent(f"receipts/{name}.txt", guard=True) for name in names[1:]),
            keeps({"drain.sh": drain.encode()}),
        ),
        solution=(
            "bash sh drain.sh",
            "bash for p in /proc/[0-9]*; do ls -l $p/fd 2> /dev/null | grep -q '/queue.lock$' && tr '\\0' ' ' < "
            "$p/cmdline; done",
            f"bash {_FIND.format(pattern, 'TERM')}; {_until(f'receipts/{names[0]}.txt')}",
            "bash until sh drain.sh 2> /dev/null; do sleep 0.1; done; cat drained.txt",
        ),
        shortcuts=(
            "bash rm queue.lock; sh drain.sh",
            f"bash {_FIND.format('^python3 holder.py', 'TERM')}; until sh drain.sh 2> /dev/null; do sleep 0.1; done; "
            "sleep 0.3",
        ),
    )


def _collect_jobs(draw: Draw) -> Scenario:
    jobs, files, expected = sorted(draw.names("service", 5)), {}, []
    for number, job in enumerate(jobs):
        first, second, status = draw.number(10, 99), draw.number(10, 99), draw.rng.choice([0, 0, 0, 3, 12])
        files[f"jobs/{job}.sh"] = (
            f"echo {job} begins\nsleep 0.{number + 1}\necho {job} warns: total 0 >&2\necho total $(({first} * "
            f"{second}))\nexit {status}\n"
        ).encode()
        expected.append(f"{job} {status} total {first * second}")
    return Scenario(
        goal="Run each script in jobs/ once, with sh. Write results.txt with one line per script, in alphabetical order: "
        "its name without .sh, a space, its exit status, a space, and the last line of its standard output.",
        files=files,
        checks=(text_is("results.txt", "\n".join(expected)), keeps(files)),
        solution=(
            f"bash cat jobs/{jobs[0]}.sh",
            "bash mkdir ~/out; for j in jobs/*.sh; do n=$(basename $j .sh); (sh $j > ~/out/$n.log 2> /dev/null; "
            "echo $? > ~/out/$n.status) & done; wait; ls ~/out",
            "bash for j in jobs/*.sh; do n=$(basename $j .sh); echo $n $(cat ~/out/$n.status) $(tail -n 1 "
            "~/out/$n.log); done > results.txt; cat results.txt",
        ),
        shortcuts=(
            "bash for j in jobs/*.sh; do sh $j; echo $(basename $j .sh) 0 total 0; done > results.txt 2>&1",
            "bash touch results.txt",
        ),
    )


def _time_limits(draw: Draw) -> Scenario:
    names, files, expected = sorted(draw.names("service", 6)), {}, []
    kinds = ["ok", "failed", "timeout", "stubborn", *draw.rng.choices(["ok", "failed"], k=2)]
    draw.rng.shuffle(kinds)
    for name, kind in zip(names, kinds, strict=True):
        text = {
            "ok": f"test {draw.number(2, 9)} -gt 1\n",
            "failed": f"echo broken >&2\nexit {draw.number(1, 9)}\n",
            "timeout": "while :; do sleep 5; done\n",
            "stubborn": "trap '' TERM INT HUP\nwhile :; do sleep 5; done\n",
        }[kind]
        files[f"checks/{name}.sh"] = f"# the check of {name}\n{text}".encode()
        expected.append(f"{name} {'timeout' if kind == 'stubborn' else kind}")
    return Scenario(
        goal="Run each script in checks/ with sh, for at most 2 seconds. Write report.txt with one line per script, in "
        "alphabetical order: its name without .sh, a space, and ok (it ended with exit status 0), failed (with another) "
        "or timeout (it had not ended after 2 seconds; then kill it, and mind that some ignore the signal TERM).",
        files=files,
        checks=(text_is("report.txt", "\n".join(expected)), keeps(files)),
        solution=(
            "bash head -n 4 checks/*",
            "bash for c in checks/*.sh; do timeout -s KILL 2 sh $c > /dev/null 2>&1; s=$?; n=$(basename $c .sh); case $s "
            "in 0) echo $n ok;; 137) echo $n timeout;; *) echo $n failed;; esac; done > report.txt 2> /dev/null; cat "
            "report.txt",
        ),
        shortcuts=(
            "bash touch report.txt",
            "bash for c in checks/*.sh; do echo $(basename $c .sh) ok; done > report.txt",
        ),
    )


def _how_it_ended(draw: Draw) -> Scenario:
    names, files, expected = sorted(draw.names("service", 6)), {}, []
    kinds = [
        ("exit", 0),
        ("exit", 143),
        ("signal", 15),
        ("signal", 9),
        ("exit", draw.number(1, 99)),
        ("signal", 10),
    ]
    draw.rng.shuffle(kinds)
    for name, (kind, number) in zip(names, kinds, strict=True):
        files[f"runs/{name}.sh"] = (f"exit {number}\n" if kind == "exit" else f"kill -{number} $$\n").encode()
        expected.append(f"{name} {kind} {number}")
    tell = (
        "import pathlib, subprocess\nfor run in sorted(pathlib.Path('runs').iterdir()):\n    code = "
        "subprocess.run(['sh', run]).returncode\n    print(run.stem, 'signal' if code < 0 else 'exit', abs(code))\n"
    )
    return Scenario(
        goal="Run each script in runs/ with sh. Write ends.txt with one line per script, in alphabetical order: its name "
        "without .sh and then exit and its exit status, or signal and the number of the signal that killed it, with "
        "single spaces. Mind that a shell's $? is the same for exit 143 and for signal 15.",
        files=files,
        checks=(text_is("ends.txt", "\n".join(expected)), keeps(files)),
        solution=(
            "bash for r in runs/*; do sh $r; echo $r $?; done 2> /dev/null",
            f"edit tell.py\n<<<<<<<\n=======\n{tell}>>>>>>>",
            "bash python3 tell.py > ends.txt && rm tell.py && cat ends.txt",
        ),
        shortcuts=(
            "bash for r in runs/*; do sh $r; s=$?; n=$(basename $r .sh); [ $s -gt 128 ] && echo $n signal $((s - 128)) "
            "|| echo $n exit $s; done > ends.txt",
            "bash : > ends.txt",
        ),
    )


def _named_pipe(draw: Draw) -> Scenario:
    secret, count = draw.code("secret"), draw.number(20, 60)
    return Scenario(
        goal="A process waits to write into the named pipe outbox. Read all that it writes, until it ends, into "
        "received.txt.",
        files={"producer.py": programs.PRODUCER},
        setup="mkfifo outbox",
        services=(Service(("python3", "producer.py", str(count)), "producer.up", secret),),
        checks=(
            text_is("received.txt", "\n".join(f"{n} {programs.proof(secret, str(n))}" for n in range(count))),
        ),
        solution=("bash ls -F", "bash timeout 10 cat outbox > received.txt; wc -l received.txt"),
        shortcuts=(
            "bash head -n 5 outbox > received.txt",
            "bash rm outbox; touch outbox; cp outbox received.txt",
        ),
    )


def _resume_stopped(draw: Draw) -> Scenario:
    pages = draw.names("word", 3)
    halted = draw.number(0, 2)
    secrets = [draw.code(page) for page in pages]
    page = pages[halted]
    state = "for p in /proc/[0-9]*; do grep -q '^State:.T' $p/status 2> /dev/null && {}; done; true"
    return Scenario(
        goal="Three painters (painter.py) run here. One of them was stopped with the signal STOP. Find out which, and "
        "let it go on with the signal CONT, so that it paints its file in pages/. Leave the other two alone: the signal "
        "CONT would make them paint, too, and their time has not come.",
        files={"painter.py": programs.PAINTER},
        setup="mkdir run pages",
        services=tuple(
            Service(
                ("python3", "painter.py", name),
                f"run/{name}.up",
                secrets[n],
                (("HALT", "1"),) if n == halted else (),
            )
            for n, name in enumerate(pages)
        ),
        goes_on=tuple(f"python3 painter.py {name}" for name in pages if name != page),
        ends=(f"python3 painter.py {page}",),
        checks=(
            text_is(f"pages/{page}.txt", f"{page} {secrets[halted]}"),
            *(absent(f"pages/{name}.txt", guard=True) for name in pages if name != page),
        ),
        solution=(
            "bash " + state.format("tr '\\0' ' ' < $p/cmdline"),
            "bash " + state.format("kill -CONT ${p#/proc/}") + f"; {_until(f'pages/{page}.txt')}",
        ),
        shortcuts=(
            f"bash {_FIND.format('^python3 painter.py', 'CONT')}; sleep 0.5",
            f"bash echo {page} > pages/{page}.txt",
        ),
    )


def _deleted_report(draw: Draw) -> Scenario:
    secret, count = draw.code("secret"), draw.number(20, 60)
    find = "ls -l /proc/[0-9]*/fd 2> /dev/null | grep 'report.txt (deleted)'"
    return Scenario(
        goal="report.txt was deleted by mistake, but a process (viewer.py) still has it open. Bring its whole content "
        "back, into recovered.txt. The process must go on.",
        files={"viewer.py": programs.VIEWER},
        goes_on=(f"python3 viewer.py {count}",),
        services=(Service(("python3", "viewer.py", str(count)), "viewer.up", secret),),
        checks=(
            text_is(
                "recovered.txt", "\n".join(f"{n} {programs.proof(secret, str(n))}" for n in range(count))
            ),
        ),
        solution=(
            "bash cat report.txt",
            f"bash {find} | wc -l",
            "bash for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in */report.txt*deleted*) cat $f > recovered.txt;; "
            "esac; done 2> /dev/null; wc -l recovered.txt",
        ),
        shortcuts=(
            "bash touch recovered.txt",
            f"bash echo x | timeout 2 python3 viewer.py {count}; touch report.txt recovered.txt",
        ),
    )


def _ordered_stop(draw: Draw) -> Scenario:
    chain = draw.names("service", 4)
    needs = [f"{one} needs {other}" for one, other in pairwise(chain)]
    needs.append(f"{chain[0]} needs {chain[2]}")
    shown = sorted(needs)
    secrets = {name: draw.code(name) for name in chain}
    log = ""
    for name in chain:
        log += f"{name} {programs.proof(secrets[name], log + name)}\n"
    return Scenario(
        goal="Four servers run here; run/ has their process ids, and needs.txt tells which server needs which. Stop all "
        "four with the signal TERM, one after the other, so that none is stopped while one that needs it still runs. "
        "Each adds a line to shutdown.log and then removes its file in run/.",
        files={"server.py": programs.SERVER, "needs.txt": "".join(f"{line}\n" for line in shown).encode()},
        setup="mkdir run",
        services=tuple(
            Service(("python3", "server.py", name), f"run/{name}.pid", secrets[name])
            for name in sorted(chain)
        ),
        ends=tuple(f"python3 server.py {name}" for name in chain),
        checks=(text_is("shutdown.log", log),),
        solution=(
            "bash cat needs.txt; ls run",
            f"bash for s in {' '.join(chain)}; do kill $(cat run/$s.pid); while [ -e run/$s.pid ]; do sleep 0.1; done; done",
            "bash cut -d ' ' -f 1 shutdown.log",
        ),
        shortcuts=(
            "bash for s in run/*.pid; do kill $(cat $s); while [ -e $s ]; do sleep 0.1; done; done"
            if sorted(chain) != chain
            else "bash kill -KILL $(cat run/*.pid)",
            f"bash kill -KILL $(cat run/*.pid); rm run/*; printf '%s x\\n' {' '.join(chain)} > shutdown.log",
        ),
    )


def _environment_of(draw: Draw) -> Scenario:
    names = draw.names("service", 3)
    wanted = names[draw.number(0, 2)]
    tokens = {name: draw.code(name) for name in names}
    read = f"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2> /dev/null | grep -q '^python3 server.py {wanted} ' && "
    return Scenario(
        goal="Three servers run here (python3 server.py NAME). Write the value that the environment variable ACCESS_CODE "
        f"has in the running process of {wanted} to code.txt. All servers must go on.",
        files={"server.py": programs.SERVER},
        setup="mkdir run",
        services=tuple(
            Service(
                ("python3", "server.py", name),
                f"run/{name}.pid",
                draw.code(f"{name} secret"),
                (("ACCESS_CODE", tokens[name]),),
            )
            for name in names
        ),
        goes_on=tuple(f"python3 server.py {name}" for name in names),
        checks=(text_is("code.txt", tokens[wanted]), absent("shutdown.log", guard=True)),
        solution=(
            "bash echo code: $ACCESS_CODE; ls run",
            f"bash {read} tr '\\0' '\\n' < $p/environ | sed -n 's/^ACCESS_CODE=//p'; done > code.txt; cat code.txt",
        ),
        shortcuts=(
            'bash echo "$ACCESS_CODE" > code.txt',
            "bash cat /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n' | sed -n 's/^ACCESS_CODE=//p' > code.txt",
        ),
    )


TEMPLATES = (
    Template("stop-worker", "processes", "train", _stop_worker),
    Template("stop-by-argument", "processes", "train", _stop_by_argument),
    Template("reload-config", "processes", "train", _reload_config),
    Template("free-lock", "processes", "train", _free_lock),
    Template("collect-jobs", "processes", "train", _collect_jobs),
    Template("time-limits", "processes", "train", _time_limits),
    Template("how-it-ended", "processes", "train", _how_it_ended),
    Template("named-pipe", "processes", "train", _named_pipe),
    Template("resume-stopped", "processes", "train", _resume_stopped),
    Template("deleted-report", "processes", "train", _deleted_report),
    Template("ordered-stop", "processes", "held_out", _ordered_stop),
    Template("environment-of", "processes", "held_out", _environment_of),
)
"""All tasks of this family."""
