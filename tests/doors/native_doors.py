"""The native doors that the tests go through: an LM of each provider on a server that speaks its format."""

from dataclasses import dataclass
from typing import Any

import pytest

from redraft.lm import native
from redraft.testing import FaultServer
from redraft.testing.wire_anthropic import ANTHROPIC
from redraft.testing.wire_bedrock import BEDROCK
from redraft.testing.wire_cohere import COHERE
from redraft.testing.wire_google import GOOGLE
from redraft.testing.wire_responses import RESPONSES
from redraft.testing.wires import CHAT, GROQ, MISTRAL, OPENROUTER


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    wire: Any
    needs: str = "openai"

    def make(self, server: FaultServer, model: str | None = None, **options):
        door = getattr(native, self.name.replace("-", "_"))
        return door(model or self.model, base_url=server.base_url, **options)


STACKS = {
    case.name: case
    for case in (
        Case("anthropic", "claude-haiku-4-5", ANTHROPIC, "anthropic"),
        Case("google", "gemini-2.5-flash", GOOGLE, "google.genai"),
        Case("openai-responses", "gpt-4.1-mini", RESPONSES),
        Case("groq", "openai/gpt-oss-20b", GROQ, "groq"),
        Case("mistral", "magistral-small-latest", MISTRAL, "mistralai"),
        Case("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", BEDROCK, "boto3"),
        Case("cohere", "command-a-03-2025", COHERE, "cohere"),
        Case("openrouter", "deepseek/deepseek-chat-v3.1", OPENROUTER),
    )
}
"""One door of each client library; what is true of a library is tested on these."""

CASES = STACKS | {
    case.name: case
    for case in (
        Case("cerebras", "gpt-oss-120b", CHAT),
        Case("deepseek", "deepseek-flash", CHAT),
        Case("together", "Qwen/Qwen3-8B", CHAT),
        Case("fireworks", "accounts/fireworks/models/qwen3-8b", CHAT),
        Case("moonshotai", "kimi-k2.6", CHAT),
        Case("zai", "glm-4.7", CHAT),
        Case("google-cloud", "gemini-2.5-flash", GOOGLE, "google.genai"),
    )
}


def params(cases):
    """One parameter a door."""
    return [pytest.param(case, id=name) for name, case in cases.items()]


def start(running, case, script=None, **options):
    """A server and an LM on it; the test is skipped if the door's library is not installed."""
    pytest.importorskip(case.needs)
    server = running.enter_context(FaultServer(script, wire=case.wire))
    return server, case.make(server, **options)
