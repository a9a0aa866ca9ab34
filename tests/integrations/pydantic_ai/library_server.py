"""An MCP server with one tool: `python -m library_server FILE` notes in FILE what it is asked."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("library")


def note(line: str) -> None:
    with Path(sys.argv[1]).open("a") as lines:
        lines.write(f"{line}\n")


@server.tool()
def look(n: int) -> str:
    """Look a page up."""
    note(f"look {n}")
    return f"page {n}"


if __name__ == "__main__":
    note("started")
    server.run("stdio")
