"""An MCP server (`redraft mcp`, extra `[mcp]`): tools that refine, check and compare texts for any MCP client.

`terms` says what clients may spend and name, `forms` what goes into the tools and what comes out, `checking`, `refining` and
`comparing` do the work, `server` speaks the protocol, `transports` listens. The SDK is imported by the last two alone.
"""
