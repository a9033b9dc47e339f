"""Runs a program of the verifier's, which imports the work, so that it is known whether it came to its end as it was.

Started by the first code (`begin_rock`) in place of the program, in a child of the process that the script started. It tells
its parent only where the program's own code ran to its end, and where the functions of the program, of modules beside it, of
builtins and of the library's modules that it imports are those of their files. An exit that the work asks for is no end of
the program's, unless to call the work was the last that it did. Runs in whatever Python the image has, from 3.6 on.
"""

import ast
import builtins
import io
import os
import sys
import threading
import traceback
import types

from begin_rock import take_in_children  # type: ignore[import-not-found]
from probes_rock import compared  # type: ignore[import-not-found]
from rock_judges import (  # type: ignore[import-not-found]
    RUN,
    changed,
    contents,
    end_tampered,
    imports_in,
    library,
    replaced,
    send,
    source_of,
    tell_by,
)
from starts_rock import bound_starts  # type: ignore[import-not-found]
from walls_rock import hide_memory  # type: ignore[import-not-found]
from work_fence import stand, take_for_tests, watch_tests  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from typing import Any

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LIBRARY = os.path.dirname(os.__file__) + "/"  # noqa: PTH120  # as old Pythons have it
_HERE = os.path.dirname(os.path.abspath(__file__)) + "/"  # noqa: PTH100, PTH120
_LATER = (b"atexit", b"multiprocessing")
"""In a program: it has something to do after its end."""


class _Program:
    """What is run: its source, its name in tracebacks, its arguments, and where it looks for modules."""

    def __init__(self, kind: str, words: "list[str]") -> None:
        self.file = os.path.abspath(words[0]) if kind == "file" else ""  # noqa: PTH100
        if kind == "text":
            self.name, self.source, self.argv = "<string>", os.fsencode(words[0]), ["-c", *words[1:]]
        elif kind == "input":
            self.name, self.source, self.argv = "<stdin>", sys.stdin.buffer.read(), words or [""]
        else:
            with open(words[0], "rb") as file:  # noqa: PTH123
                self.name, self.source, self.argv = self.file, file.read(), words
        self.folder = os.path.dirname(os.path.realpath(self.file)) if self.file else ""  # noqa: PTH120
        self.tree = None  # type: Any
        self.module = types.ModuleType("__main__")


def _places() -> "list[str]":
    return [place + "/" for place in os.environ.get("ROCK_GUARD_OWN", "").split(":") if place.startswith("/")]


def _is_own(file: str, program: _Program) -> bool:
    """Return whether a file is the program, or one beside it that is the verifier's."""
    return file == program.name or os.path.abspath(file).startswith(tuple(_places()))  # noqa: PTH100


def _run(program: _Program) -> int:
    """Run it; return its exit code."""
    space = vars(program.module)
    space.update(__builtins__=builtins, __cached__=None)
    if program.file:
        space["__file__"] = program.file
    sys.modules["__main__"] = program.module
    try:
        RUN.sources[program.name] = program.source
        program.tree = compared(ast.parse(program.source, program.name))
        code = compile(program.tree, program.name, "exec", dont_inherit=True)
        take_for_tests(code)
        watch_tests()
        exec(code, space)
    except SystemExit as error:
        ended = _code_of(error)
        return ended or (RUN.status if _look_at_exit(error, program) else 0)
    except BaseException:  # noqa: BLE001  # as the interpreter does
        kind, raised, trace = sys.exc_info()
        inner = trace.tb_next if trace is not None else None
        sys.excepthook(kind, raised.with_traceback(inner), inner)  # type: ignore[arg-type, union-attr]
        return 1
    return 0


def _code_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(str(error.code) + "\n")
    return 1


def _look_at_exit(error: SystemExit, program: _Program) -> bool:
    """Note an exit that the work asked for while the program had more to do; return whether `unittest.main` asked for it."""
    tools = {"/" + name + "/" for name in os.environ.get("ROCK_GUARD_TOOLS", "").split(":") if name}
    steps = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)][1:]
    by_unittest = bool(steps) and steps[-1][0].startswith(_LIBRARY + "unittest/")
    steps = [
        (file, line)
        for file, line in steps
        if not file.startswith((_LIBRARY, _HERE, "<frozen"))
        and not ("-packages/" in file and any(map(file.__contains__, tools)))
    ]
    if not steps or _is_own(steps[-1][0], program):
        return by_unittest
    own = [line for file, line in steps if _is_own(file, program)]
    last = program.tree.body[-1]
    if not (len(own) == 1 and isinstance(last, ast.Expr) and own[0] >= last.lineno):
        RUN.why = RUN.why or "the work ended a program of the verifier's"
    return False


# -- functions that are not those of their files


def _codes(code: "Any") -> "dict[str, list[Any]]":
    """Return the code of all functions of a file, by name."""
    found = {}  # type: dict[str, list[Any]]
    waiting = [code]
    while waiting:
        for each in waiting.pop().co_consts:
            if isinstance(each, types.CodeType):
                found.setdefault(each.co_name, []).append(each)
                waiting.append(each)
    return found


def _bound(tree: "Any") -> "set[str]":
    """Return names that a file gives a value in another way than by defining them once."""
    names = [node.name for node in tree.body if isinstance(node, (*_FUNCTIONS, ast.ClassDef))]
    bound = {name for name in names if names.count(name) > 1}
    bound.update(name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return bound


def _remember(module: "Any", tree: "Any", file: str) -> None:
    """Have a file's names compared: what it imports of the library with what that was, and no builtin may be hidden."""
    known = {}  # type: dict[tuple[str, str], Any]
    for where, each, value in _BEFORE:
        if isinstance(where, types.ModuleType):
            known.update({(where.__name__, each): value, (where.__name__, ""): where})
    space, said, found = vars(module), {*vars(types.ModuleType("a"))}, {}  # type: Any, set[str], dict[str, Any]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            said.add(node.id)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler)):
            said.add(str(node.name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name, source = alias.asname or alias.name, (getattr(node, "module", None) or "", alias.name)
                if isinstance(node, ast.Import):
                    name = alias.asname or alias.name.split(".")[0]
                    source = (alias.name if alias.asname else name), ""
                if found.setdefault(name, source) != source:
                    said.add(name)  # whichever there is
    was = {each: known.get(source, space.get(each)) for each, source in found.items() if each in space}
    was.update({each: space[each] for each in said if each in space})
    was["__builtins__"] = vars(builtins) if type(space["__builtins__"]) is dict else builtins
    if "*" not in found:
        RUN.names[file] = space, was, None


def _not_its_own(module: "Any", tree: "Any", name: str) -> str:
    """Return which function or method of a module is not the one that its file defines, or an empty text."""
    codes, bound = _codes(compile(tree, name, "exec", dont_inherit=True)), _bound(tree)
    for place, nodes in [(module, tree.body), *_classes(module, tree, bound)]:
        for node in nodes:
            if not isinstance(node, _FUNCTIONS) or node.decorator_list or node.name in bound:
                continue
            now = vars(place).get(node.name)
            if now is not None and getattr(now, "__code__", None) not in codes[node.name]:
                return node.name
    return ""


def _classes(module: "Any", tree: "Any", bound: "set[str]") -> "list[tuple[Any, Any]]":
    own = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found = [
        (vars(module).get(node.name), node)
        for node in own
        if not node.decorator_list and node.name not in bound
    ]
    return [(each, node.body) for each, node in found if isinstance(each, type)]


def _replaced_here(program: _Program) -> str:
    """Return which function of the verifier's own modules was replaced, or an empty text."""
    if program.tree is None:
        return ""
    _remember(program.module, program.tree, program.name)
    name = _not_its_own(program.module, program.tree, program.name)
    if name:
        return name
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        is_source = type(getattr(module, "__loader__", None)).__name__ == "SourceFileLoader"
        if module is program.module or not is_source or not file or not _is_own(file, program):
            continue
        try:
            RUN.sources.setdefault(file, source_of(file))
            tree = ast.parse(RUN.sources[file], file)
            _remember(module, tree, file)
            name = _not_its_own(module, tree, file)
        except (OSError, SyntaxError):
            continue
        if name:
            return name
    return ""


# -- its end


def _finish(program: _Program, code: int) -> None:
    """Tell the parent of the end, and end before anything that the work has left for later."""
    threading._shutdown()  # type: ignore[attr-defined]
    take_in_children()
    name = _replaced_here(program)
    RUN.why = RUN.why or (name and "the verifier's " + name + " was replaced")
    RUN.why = RUN.why or changed() or replaced(_BEFORE, [program.name, *_places()])
    for each in [sys.stdout, sys.stderr, *vars(program.module).values()]:
        try:
            if isinstance(each, io.IOBase) and not each.closed:
                each.flush()
        except (OSError, ValueError):
            continue
    send(b"%d %d %d %d" % (RUN.judged, code, RUN.status, RUN.passed))
    if any(word in program.source for word in _LATER):
        sys.exit(code)
    os._exit(code)


def _begin() -> _Program:
    fds, kind, *words = sys.argv[1:]
    pipe, told = map(int, fds.split(":"))
    tell_by(pipe, os.read(told, 16))
    RUN.in_program = True
    os.close(told)
    os.set_inheritable(pipe, False)
    program = _Program(kind, words)
    sys.argv = program.argv
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = program.folder
    return program


_ITSELF = sys.modules["__main__"]
hide_memory()
bound_starts(end_tampered)
_PROGRAM = _begin()
RUN.before = [*contents(builtins), (sys, "exit", sys.exit)]
_BEFORE = library(imports_in(os.fsdecode(_PROGRAM.source)))
if b"unittest" in _PROGRAM.source:
    import rock_unittest  # type: ignore[import-not-found]  # noqa: F401
stand(end_tampered)
_finish(_PROGRAM, _run(_PROGRAM))
