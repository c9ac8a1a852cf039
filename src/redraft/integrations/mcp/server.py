"""The server itself: its tools and its resource in the protocol's terms, and the boundary where errors become answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from redraft import __version__
from redraft.errors import InputError, RedraftError
from redraft.integrations.mcp.checking import check, listing
from redraft.integrations.mcp.comparing import compare
from redraft.integrations.mcp.forms import (
    CheckForm,
    CheckOut,
    CompareForm,
    CompareOut,
    Given,
    RefineForm,
    RefineOut,
    filled,
)
from redraft.integrations.mcp.refining import Tell, refine
from redraft.integrations.mcp.terms import Terms
from redraft.result import calls, dollars, tokens

log = logging.getLogger("redraft.mcp")

CHECKS_URI = "redraft://checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool: what it takes, what it returns, and who does it."""

    title: str
    says: str
    form: type[Given]
    out: type[BaseModel]
    work: Callable[[Any, Terms, Tell], Awaitable[BaseModel]]
    spends: bool = True

    def declared(self, name: str) -> types.Tool:
        """As clients see it."""
        return types.Tool(
            name=name,
            title=self.title,
            description=self.says,
            input_schema=self.form.model_json_schema(),
            output_schema=self.out.model_json_schema(mode="serialization"),
            annotations=types.ToolAnnotations(
                read_only_hint=True,
                destructive_hint=False,
                idempotent_hint=not self.spends,
                open_world_hint=self.spends,
            ),
        )


TOOLS = {
    "refine": Tool(
        title="Refine a text until it meets its bar",
        says="Write a text, or improve a draft, until it passes its checks, inside hard limits. The requirements are told, "
        "checked by code, repaired by code, and only then a model is asked again; the best text is kept, never the last. "
        "Returns the text, whether it passed, every attempt's fate, and what it cost. Progress comes with each attempt.",
        form=RefineForm,
        out=RefineOut,
        work=refine,
    ),
    "check": Tool(
        title="Check a text",
        says="Judge a text by checks: what failed, where, and the text with what code alone can repair. Never calls a model, "
        "costs nothing. Use it before refine.",
        form=CheckForm,
        out=CheckOut,
        work=lambda given, terms, _: check(given, terms),
        spends=False,
    ),
    "compare": Tool(
        title="Compare two texts",
        says="Which of two texts does a task better: by checks where they tell, otherwise by a model that is asked in both "
        "orders, since judges favour a place. Returns a, b or tie, and why.",
        form=CompareForm,
        out=CompareOut,
        work=lambda given, terms, _: compare(given, terms),
    ),
}

INSTRUCTIONS = (
    "redraft makes a text meet its bar. State the bar as checks (read redraft://checks for their notation), check a text "
    "that you have first (free), and refine it only if it falls short. Checks beat criteria: code sees form exactly, a "
    "model's opinion costs calls."
)


def make_server(terms: Terms) -> Server[Any]:
    """The MCP server under these terms, for any transport of the SDK."""

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.declared(name) for name, tool in TOOLS.items()])

    async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        return await answered(params.name, params.arguments or {}, terms, ctx)

    async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[_RESOURCE])

    async def read_resource(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if str(params.uri) != CHECKS_URI:
            raise MCPError(types.INVALID_PARAMS, f"no resource {params.uri}; there is {CHECKS_URI}")
        text = types.TextResourceContents(uri=CHECKS_URI, mime_type="text/markdown", text=listing())
        return types.ReadResourceResult(contents=[text])

    return Server(
        "redraft",
        version=__version__,
        title="redraft",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


_RESOURCE = types.Resource(
    uri=CHECKS_URI,
    name="checks",
    title="Checks and their notation",
    description="Every check with what to write for it.",
    mime_type="text/markdown",
)


async def answered(
    name: str, arguments: dict[str, Any], terms: Terms, ctx: ServerRequestContext[Any]
) -> types.CallToolResult:
    """The answer to a call of a tool. What goes wrong is an answer, too: redraft's message, and what was spent."""
    try:
        tool = TOOLS.get(name)
        if tool is None:
            raise InputError(f"no tool {name!r}; there are: {', '.join(TOOLS)}")
        given = filled(tool.form, arguments)
        async with _telling(ctx) as tell:
            said = await tool.work(given, terms, tell)
    except RedraftError as error:
        return _failed(name, _with_receipt(error))
    except Exception as error:
        # The boundary to the client: an answer, never a stack trace; that goes to the owner's log.
        log.exception("unexpected in %s", name)
        return _failed(name, f"unexpected {type(error).__name__}: {error}. This is a bug of redraft; please report it.")
    text = _sendable(json.dumps(said.model_dump(mode="json"), ensure_ascii=False, indent=2))
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=json.loads(text))


def _sendable(text: str) -> str:
    """The text without halves of characters, which models do write, and the protocol cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _with_receipt(error: RedraftError) -> str:
    usage = error.usage
    if usage is None or not usage.calls:
        return str(error)
    cost = dollars(None if usage.unpriced else usage.cost)
    return f"{error} (spent: {calls(usage)}, {tokens(usage)}, {cost})"


def _failed(name: str, message: str) -> types.CallToolResult:
    log.info("%s: %s", name, message)
    return types.CallToolResult(content=[types.TextContent(text=_sendable(message))], is_error=True)


@contextlib.asynccontextmanager
async def _telling(ctx: ServerRequestContext[Any]) -> AsyncIterator[Tell]:
    """A function that sends progress. It never waits: what it is told goes out in order, all of it before the answer."""
    notes: asyncio.Queue[tuple[float, float | None, str] | None] = asyncio.Queue()

    async def send() -> None:
        while (note := await notes.get()) is not None:
            await ctx.session.report_progress(*note)

    sending = asyncio.ensure_future(send())
    try:
        yield lambda done, of, what: notes.put_nowait((done, of, _sendable(what)))
        notes.put_nowait(None)
        await sending
    finally:
        sending.cancel()
