"""An MCP client of the official SDK: starts `redraft mcp` as its child, checks a text for nothing, then has it refined.

    python examples/14_mcp_session.py      (pip install 'redraft[mcp,local]')

The embedded model answers (REDRAFT_MODEL or OPENAI_BASE_URL name another). What code can judge or mend costs no call, and
each attempt is told of. Expected output: three tools, verdicts, the attempts as they happen, the text, and what it cost.
"""

import asyncio
import os
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters

TASK = "Review La Maison, a French restaurant, in three sentences"
DRAFT = "La Maison is nice, and the soup is hot."
CHECKS = ["sentences:3", "contains:La Maison", "no_commas"]
MODELS = ("REDRAFT_MODEL", "REDRAFT_LOCAL_MODEL", "REDRAFT_CACHE", "OPENAI_BASE_URL", "OPENAI_API_KEY")


async def tell(progress: float, total: float | None, message: str | None) -> None:
    """What the server says while it works."""
    print(f"  {progress:g}/{total or 0:g} {message}")


async def main() -> None:
    """One session."""
    # A child of the SDK gets no environment but what it is given.
    environment = {name: os.environ[name] for name in MODELS if name in os.environ}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "redraft", "mcp", "--call-limit", "6"], env=environment
    )
    async with Client(server) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))

        checked = await client.call_tool("check", {"text": DRAFT, "checks": CHECKS})
        said = checked.structured_content or {}
        print(f"check: {'passed' if said['passed'] else 'not passed'}")
        for verdict in said["verdicts"]:
            print(f"  {'ok' if verdict['passed'] else 'x '} {verdict['check']}: {verdict['explanation'] or 'fine'}")
        print(f"  by code alone: {said['fixed']}")

        print("refine:")
        asked = {"task": TASK, "draft": DRAFT, "checks": CHECKS}
        refined = await client.call_tool("refine", asked, progress_callback=tell)
        if refined.is_error:
            raise SystemExit(refined.content[0].text if refined.content else "refine failed")
        said = refined.structured_content or {}
        print(f"\n{said['text']}\n")
        usage = said["usage"]
        tokens = usage["input_tokens"] + usage["output_tokens"]
        print(f"{said['stop_reason']} | calls: {usage['calls']} | tokens: {tokens}")


if __name__ == "__main__":
    asyncio.run(main())
