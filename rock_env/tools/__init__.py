"""The tools an agent works with in a sandbox, and the forms in which it may call them: text, JSON, MCP."""

from rock_env.tools.calls import TOOLS, Bash, Edit, Malformed, RunTests, Submit, ToolCall, Undo, View
from rock_env.tools.json_calls import render_json_call, schemas
from rock_env.tools.text import parse_call, render_call
from rock_env.tools.toolbox import Toolbox, ToolReply

__all__ = [
    "TOOLS",
    "Bash",
    "Edit",
    "Malformed",
    "RunTests",
    "Submit",
    "ToolCall",
    "ToolReply",
    "Toolbox",
    "Undo",
    "View",
    "parse_call",
    "render_call",
    "render_json_call",
    "schemas",
]
