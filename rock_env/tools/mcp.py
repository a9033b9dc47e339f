"""The tools over the Model Context Protocol, for one sandbox that runs already: a server on standard input and output.

    python -m rock_env.tools.mcp --sandbox ID --rock ADDRESS [--project FOLDER] [--test-command COMMAND]

Started by an MCP client as its child, and ends with it; the sandbox lives on. Credentials come from the environment
(ROCK_TOKEN, ROCK_CA ...), as for every client. Needs the `mcp` package (extra `mcp`), which nothing else imports.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from rock_env.client.client import Client
from rock_env.errors import RockError
from rock_env.tools.box import Box
from rock_env.tools.calls import Malformed
from rock_env.tools.json_calls import call_from
from rock_env.tools.remote import RemoteBox
from rock_env.tools.toolbox import Toolbox, ToolReply

try:
    import mcp_types as mcp
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.shared.exceptions import MCPError
except ImportError as missing:
    _PROBLEM = "the tools over MCP need the mcp package, version 2. Install it: pip install 'ale-rl[mcp]'."
    if __name__ == "__main__":
        sys.exit(_PROBLEM)
    raise ImportError(_PROBLEM) from missing

__all__ = ["main", "mcp_server"]

_ENDED = ToolReply("[failed] the task has ended with submit.", failed=True)


def mcp_server(toolbox: Toolbox, box: Box) -> Server[object]:
    """Return a server of the tools: what the agent does wrong is a result with `is_error`, a failed box an error."""
    one_at_a_time = asyncio.Lock()  # a session is one agent, though clients may send calls side by side
    submitted = False

    async def list_tools(
        context: ServerRequestContext[object], params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListToolsResult:
        functions = [each["function"] for each in toolbox.schemas()]
        return mcp.ListToolsResult(
            tools=[
                mcp.Tool(name=it["name"], description=it["description"], input_schema=it["parameters"])
                for it in functions
            ]
        )

    async def call_tool(
        context: ServerRequestContext[object], params: mcp.CallToolRequestParams
    ) -> mcp.CallToolResult:
        nonlocal submitted
        async with one_at_a_time:
            call = call_from(params.name, params.arguments or {}, named="name")
            try:
                if isinstance(call, Malformed):
                    reply = ToolReply(f"[not run] {call.problem}.", illegal=True)
                else:
                    reply = _ENDED if submitted else await toolbox.call(box, call)
            except RockError as error:
                raise MCPError(mcp.INTERNAL_ERROR, f"the sandbox cannot be used: {error}") from error
            submitted = submitted or reply.submitted
        return mcp.CallToolResult(
            content=[mcp.TextContent(text=reply.text)], is_error=reply.failed or reply.illegal
        )

    return Server("rock-tools", on_list_tools=list_tools, on_call_tool=call_tool)


async def _serve(options: argparse.Namespace) -> None:
    toolbox = Toolbox(
        options.project,
        options.test_command,
        command_timeout_s=options.timeout,
        max_output_chars=options.max_output_chars,
    )
    async with Client(options.rock) as client, await client.sandboxes.attach(options.sandbox) as sandbox:
        server = mcp_server(toolbox, RemoteBox(sandbox))
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rock_env.tools.mcp",
        description="Serve a sandbox's tools over MCP on standard input/output.",
    )
    parser.add_argument("--sandbox", metavar="ID", required=True, help="a sandbox that runs (ale rock ps)")
    parser.add_argument(
        "--rock",
        metavar="ADDRESS",
        default=os.environ.get("ROCK_ADDRESS", "127.0.0.1:8120"),
        help="its server; ROCK_ADDRESS, or %(default)s",
    )
    parser.add_argument(
        "--project",
        metavar="FOLDER",
        default=".",
        help="where paths and the session begin; the working folder",
    )
    parser.add_argument(
        "--test-command",
        metavar="COMMAND",
        default="",
        help="what run_tests runs; none: there is no such tool",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=20.0, help="for each command; %(default)s"
    )
    parser.add_argument(
        "--max-output-chars", metavar="N", type=int, default=2000, help="shown of each reply; %(default)s"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the client closes its end; return the exit status."""
    options = _parser().parse_args(argv)
    try:
        asyncio.run(_serve(options))
    except RockError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  a program's last words
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
