"""A stateful shell over any sandbox: working folder, variables, functions and options survive between commands.

Used by environments whose actions are shell commands. Each command is a `bash` of its own that loads what the last
one saved in the box and saves it again when it ends, so nothing is kept outside the box and no stuck shell
has to be told from a slow one. A command that is killed, or replaces its shell, leaves the state before it.
"""

from __future__ import annotations

from rock_env.sandbox import ExecResult, Sandbox

__all__ = ["run_in_shell"]

# Not saved: what bash sets itself, and IFS, which the saving loop needs.
_SCRIPT = r"""
IFS= read -r -d '' __rock_command
exec </dev/null 2>&1
shopt -s expand_aliases
__rock_state="$HOME/.rock_shell"
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


async def run_in_shell(
    sandbox: Sandbox, command: str, *, timeout_s: float, max_output_bytes: int = 1 << 20
) -> ExecResult:
    """Run `command` in the sandbox's shell; stdout holds both its outputs in order. NUL ends the command text."""
    return await sandbox.exec(
        ["bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash"],
        stdin=command.encode(errors="replace"),
        timeout_s=timeout_s,
        max_output_bytes=max_output_bytes,
    )
