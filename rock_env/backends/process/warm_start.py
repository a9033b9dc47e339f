"""The program of a zygote that preloads (see `preload`), started as a script by the Python of a box.

Its outermost frame is also that of every program its boxes fork, which is why it is so flat: tracebacks and the depth of
calls are as a program's own interpreter would have them. Never imported.
"""

import importlib
import marshal
import sys

PLAN_FD = 201

folder = sys.path.pop(0)
with open(PLAN_FD, "rb") as file:
    plan = marshal.load(file)
missing = []
for name in plan["preload"]:
    try:
        importlib.import_module(name)
    except ImportError:
        missing.append(name)
before = set(sys.modules), list(sys.path), set(sys.path_importer_cache)
sys.path.append(folder.removesuffix("/rock_env/backends/process"))

from rock_env.backends.process.zygote import begin  # noqa: E402  only now can it be found

do, arguments = begin(plan, missing, before)
try:
    do(*arguments)
except (SystemExit, KeyboardInterrupt):
    raise
except BaseException as error:  # noqa: BLE001  named boundary: what the interpreter does with it, without this frame
    failure = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
else:
    sys.exit()
sys.excepthook(type(failure), failure, failure.__traceback__)
sys.exit(1)
