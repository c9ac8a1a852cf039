"""Other people's frameworks: each door is imported by its own name and needs its own extra.

The doors: dspy, instructor, langchain, mcp, openai, pydantic_ai. The other modules are internal: they may change at any time.
"""
