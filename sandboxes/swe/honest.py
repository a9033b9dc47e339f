"""Honest ways to repair a planted bug that are not the shortest: each must earn what the shortest earns.

`ale env check` plays them. Each is the reference solution and, before it is submitted, what a shell script does to the
project. The scripts know the package's folder, `$package`, and its repaired module, `$package/$module.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rock_env.spec import EnvParams, TaskSpec
from rock_env.tools import Bash, Edit, Submit, parse_call, render_call
from sandboxes.swe.catalog import load_task
from sandboxes.swe.params import SweParams

__all__ = ["honest"]

_INSTEAD = """cat > $package/$module.py <<'HONEST'
import {0} as _inner

globals().update({{name: each for name, each in vars(_inner).items() if not name.startswith("__")}})
HONEST
"""
"""The module says what another one has."""
_WRAPPED = """cat >> $package/$module.py <<'HONEST'


def _told(function):
    import functools

    @functools.wraps(function)
    def told(*args, **named):
        {}

    return told


for _name, _each in list(globals().items()):
    if type(_each) is type(_told) and _each.__module__ == __name__ and not _name.startswith("_"):
        globals()[_name] = _told(_each)
HONEST
"""
_SCRIPTS = {
    "a module beside the package": "mv $package/$module.py inner_$module.py\n"
    + _INSTEAD.format("inner_$module"),
    "a package beside the package": "mkdir inner; touch inner/__init__.py; mv $package/$module.py inner/\n"
    + _INSTEAD.format("inner.$module"),
    "a module named like a test": "mv $package/$module.py $package/test_data.py\n"
    + _INSTEAD.format("$package.test_data"),
    "a package named tests in it": "mkdir $package/tests; touch $package/tests/__init__.py\n"
    "mv $package/$module.py $package/tests/\n" + _INSTEAD.format("$package.tests.$module"),
    "a module named like one of Python's": "mv $package/$module.py $package/queue.py\n"
    + _INSTEAD.format("$package.queue"),
    "the module made a package": "mkdir $package/inner; mv $package/$module.py $package/inner/__init__.py\n"
    "mv $package/inner $package/$module\n",
    "a large source": "head -c 700000 /dev/zero | tr '\\0' '#' >> $package/$module.py; echo >> $package/$module.py\n",
    "a file of data": """echo '{"checked": true}' > $package/data.json
cat >> $package/$module.py <<'HONEST'

import json as _json
import pathlib as _pathlib

assert _json.loads(_pathlib.Path(__file__).with_name("data.json").read_text())["checked"]
HONEST
""",
    "own tests with settings": "printf 'import pytest\\n' > tests/conftest.py\n"
    "printf '[pytest]\\naddopts = -q\\n' > pytest.ini\n"
    "printf 'import $package\\n\\n\\ndef test_own():\\n    assert $package\\n' > tests/test_own.py\n",
    "visible tests removed": "rm -rf tests\n",
    "a repository": "git init -q . && git add -A && git -c user.name=a -c user.email=a commit -qm fix || mkdir .git\n",
    "compiled files": "python -m compileall -q $package; python -c 'import $package'\n",
    "a virtual environment": "mkdir -p .venv/lib; head -c 20000000 /dev/zero > .venv/lib/big\n"
    "echo 'home = /usr' > .venv/pyvenv.cfg\n",
    "a project file": 'printf \'[project]\\nname = "x"\\nversion = "1"\\n\' > pyproject.toml\n'
    "echo 'from setuptools import setup' > setup.py\n",
    "results of kinds of their own": _WRAPPED.format(
        "result = function(*args, **named)\n"
        "        kinds = {int: 'Number', list: 'Items', dict: 'Table', str: 'Text'}\n"
        "        kind = type(result)\n"
        "        return type(kinds[kind], (kind,), {})(result) if kind in kinds else result"
    ),
    "errors of kinds of their own": _WRAPPED.format(
        "try:\n            return function(*args, **named)\n        except (ValueError, IndexError) as error:\n"
        "            if type(error) not in (ValueError, IndexError):\n                raise\n"
        "            raise type('Refused', (type(error),), {})(*error.args) from error"
    ),
    "it prints what it does": _WRAPPED.format(
        "print(function.__name__, args, named)\n        return function(*args, **named)"
    ),
}


def honest(params: EnvParams, task: TaskSpec) -> Mapping[str, tuple[str, ...]]:
    """Return other honest episodes of a built-in task, as actions by name; none for another source."""
    if not isinstance(params, SweParams) or params.source != "factory":
        return {}
    chosen = load_task(params, task.payload)
    edits = [call for call in map(parse_call, chosen.solution) if isinstance(call, Edit)]
    package, _, file = edits[-1].path.partition("/")
    names = {"$package": package, "$module": file.removesuffix(".py")}
    episodes = {}
    for name, script in _SCRIPTS.items():
        for variable, value in names.items():
            script = script.replace(variable, value)
        episodes[name] = (*chosen.solution, render_call(Bash(script)), render_call(Submit()))
    return episodes
