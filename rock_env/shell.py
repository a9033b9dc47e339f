"""A stateful shell over any sandbox: working folder, variables, functions and options survive between commands.

Used by environments whose actions are shell commands. Each command is a shell of its own that loads what the last
one saved in the box and saves it again when it ends, so nothing is kept outside the box and no stuck shell
has to be told from a slow one. A command that is killed, or replaces its shell, leaves the state before it.

In an image without bash it is `/bin/sh`, which needs no other program for it. POSIX sh cannot tell its functions and
aliases, so there only the working folder, variables, options and umask survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rock_env.sandbox import ExecResult

__all__ = ["Executor", "run_in_shell", "shell_argv"]

_CHOOSE = r"""
__rock_home=${HOME:-/tmp}
if [ ! -w "$__rock_home" ]; then __rock_home=/tmp; fi
if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc -c "$1" bash "$3" "$__rock_home"; fi
exec /bin/sh -c "$2" sh "$3" "$__rock_home"
"""

# Not saved: what bash sets itself, and IFS, which the saving loop needs.
_BASH = r"""
IFS= read -r -d '' __rock_command
exec </dev/null 2>&1
shopt -s expand_aliases
__rock_state="$2/.rock_shell"
if [ -n "$1" ]; then cd -- "$1" 2>/dev/null; fi
shift $#
if [ -r "$__rock_state" ]; then . "$__rock_state" >/dev/null 2>&1; fi
__rock_save() {
  {
    for __rock_name in $(compgen -v); do
      case $__rock_name in
        __rock_*|BASH*|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO|OPTERR|OPTIND) ;;
        PIPESTATUS|PPID|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|_) ;;
        *) declare -p "$__rock_name" ;;
      esac
    done
    declare -f; alias -p; shopt -p; set +o; umask -p
    printf 'cd -- %q\n' "$PWD"
  } >"$__rock_state.new" 2>/dev/null && mv -f "$__rock_state.new" "$__rock_state"
}
trap __rock_save EXIT
eval "$__rock_command"
"""

# The same in POSIX sh, with builtins where there is no cat and no mv. Options are loaded last, since `set -e` could end it.
_SH = r"""
__rock_command=
if command -v cat >/dev/null; then __rock_command=$(cat; printf .); __rock_command=${__rock_command%.}; fi
while IFS= read -r __rock_line || [ -n "$__rock_line" ]; do __rock_command="$__rock_command$__rock_line
"; done
exec </dev/null 2>&1
__rock_state="$2/.rock_sh"
if [ -n "$1" ]; then cd -- "$1" 2>/dev/null; fi
shift $#
if [ -r "$__rock_state" ]; then . "$__rock_state" >/dev/null 2>&1; fi
__rock_quote() {
  printf "'"
  while :; do
    case $1 in
      *\'*) printf "%s'\\\\''" "${1%%\'*}"; set -- "${1#*\'}" ;;
      *) printf "%s'" "$1"; return ;;
    esac
  done
}
__rock_kept() {
  case $1 in
    ''|[0-9]*|*[!A-Za-z0-9_]*) return 1 ;;
    __rock_*|_|BB_ASH_VERSION|EPOCH*|HIST*|IFS|LINENO|OLDPWD|OPTARG|OPTIND|PPID|PS[124]|PWD|RANDOM|SHLVL) return 1 ;;
  esac
  eval "[ \"\${$1+set}\" = set ]"
}
__rock_save() {
  __rock_options=$(set +o)
  set +e +u +f +x
  __rock_saved=$(
    set | while IFS= read -r __rock_line; do
      __rock_name=${__rock_line%%=*}
      if __rock_kept "$__rock_name"; then
        eval "__rock_value=\$$__rock_name"
        printf '%s=' "$__rock_name"; __rock_quote "$__rock_value"; printf '\n'
      fi
    done
    export -p | while IFS= read -r __rock_line; do
      __rock_name=${__rock_line#export }
      __rock_name=${__rock_name%%=*}
      if __rock_kept "$__rock_name"; then printf 'export %s\n' "$__rock_name"; fi
    done
    printf 'umask %s\ncd -- ' "$(umask)"; __rock_quote "$PWD"; printf '\n%s\n' "$__rock_options"
  )
  printf '%s\n' "$__rock_saved" 2>/dev/null >"$__rock_state.new" &&
    { mv -f "$__rock_state.new" "$__rock_state" || printf '%s\n' "$__rock_saved" >"$__rock_state"; } 2>/dev/null
}
trap __rock_save EXIT
eval "$__rock_command"
"""


class Executor(Protocol):
    """What runs programs: a `Sandbox`, or a client's view of one."""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run `argv` as `Sandbox.exec` does."""
        ...


def shell_argv(start_in: str = "") -> list[str]:
    """Return the program that takes a command of the sandbox's shell from its standard input."""
    return ["/bin/sh", "-c", _CHOOSE, "sh", _BASH, _SH, start_in]


async def run_in_shell(
    sandbox: Executor,
    command: str,
    *,
    timeout_s: float,
    max_output_bytes: int = 1 << 20,
    start_in: str = "",
) -> ExecResult:
    """Run `command` in the sandbox's shell; stdout holds both its outputs in order. NUL ends the command text.

    `start_in` is the first command's working folder; later ones begin where the one before left.
    """
    return await sandbox.exec(
        shell_argv(start_in),
        stdin=command.encode(errors="replace"),
        timeout_s=timeout_s,
        max_output_bytes=max_output_bytes,
    )
