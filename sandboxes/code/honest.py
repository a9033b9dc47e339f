"""Honest answers that are not the solution as it is written: each must earn what that earns. `ale env check` plays them."""

from __future__ import annotations

from collections.abc import Mapping

from rock_env.spec import EnvParams, TaskSpec
from sandboxes.code.catalog import find

__all__ = ["honest"]

_ANSWERS = {
    "in a block": "```python\n{solution}```\n",
    "in the last of two blocks": "A first try:\n```\ndef {name}(*args): pass\n```\nBetter:\n```py\n{solution}```\nDone.\n",
    "with a docstring of the module": '"""What was asked for."""\n\nfrom __future__ import annotations\n\n{solution}',
    "with imports": "import math\nimport re\nfrom collections import Counter, defaultdict\n\n{solution}",
    "with examples of its own": "{solution}\n\nif __name__ == '__main__':\n    print({name})\n",
    "as a helper": "{inner}\n\ndef {name}(*args):\n    return _inner(*args)\n",
    "as a lambda": "{inner}\n\n{name} = lambda *args: _inner(*args)\n",
    "as an object that is called": "{inner}\n\nclass _Answer:\n    def __call__(self, *args):\n"
    "        return _inner(*args)\n\n{name} = _Answer()\n",
    "behind a decorator": "import functools\n\n{inner}\n\ndef _traced(function):\n    @functools.wraps(function)\n"
    "    def traced(*args):\n        return function(*args)\n    return traced\n\n{name} = _traced(_inner)\n",
    "with output": "import sys\n\n{inner}\n\ndef {name}(*args):\n    print(args)\n    print(args, file=sys.stderr)\n"
    "    return _inner(*args)\n",
    "by keyword arguments of its own": "{inner}\n\ndef {name}(*args, checked=True):\n    return _inner(*args)\n",
    "from copies": "import copy\n\n{inner}\n\ndef {name}(*args):\n    return _inner(*copy.deepcopy(args))\n",
    "as subclasses": "import collections\n\n{inner}\n\ndef {name}(*args):\n    right = _inner(*args)\n"
    "    kind = type(right)\n    if kind is dict:\n        return collections.OrderedDict(right)\n"
    "    return type('Kind', (kind,), {{}})(right) if kind in (int, list, str) else right\n",
    "as a tuple": "{inner}\n\ndef {name}(*args):\n    right = _inner(*args)\n"
    "    return tuple(right) if isinstance(right, list) else right\n",
}


def honest(params: EnvParams, task: TaskSpec) -> Mapping[str, tuple[str, ...]]:
    """Return other honest episodes of a task, as actions by name."""
    problem = find(task.payload)
    solution = problem.solution
    inner = solution.replace(f"def {problem.name}(", "def _inner(").replace(f"{problem.name}(", "_inner(")
    return {
        name: (text.format(solution=solution, inner=inner, name=problem.name),)
        for name, text in _ANSWERS.items()
    }
