"""The native doors that the tests go through: an LM of each provider on a server that speaks its format."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from redraft.lm import native
from redraft.testing import FaultServer
from redraft.testing.wire_anthropic import ANTHROPIC
from redraft.testing.wire_bedrock import BEDROCK
from redraft.testing.wire_google import GOOGLE
from redraft.testing.wire_responses import RESPONSES
from redraft.testing.wires import CHAT, GROQ, MISTRAL, OPENROUTER


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    wire: Any
    needs: str = "openai"
    thinks: dict = field(default_factory=dict)

    def make(self, server: FaultServer, model: str | None = None, **options):
        door = getattr(native, self.name.replace("-", "_"))
        return door(model or self.model, base_url=server.base_url, **options)


CASES = {
    case.name: case
    for case in (
        Case("anthropic", "claude-haiku-4-5", ANTHROPIC, "anthropic"),
        Case("google", "gemini-2.5-flash", GOOGLE, "google.genai"),
        Case("openai-responses", "gpt-4.1-mini", RESPONSES),
        Case("groq", "openai/gpt-oss-20b", GROQ, "groq"),
        Case("mistral", "magistral-small-latest", MISTRAL, "mistralai"),
        Case("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", BEDROCK, "boto3"),
        Case("cerebras", "gpt-oss-120b", CHAT),
        Case("openrouter", "deepseek/deepseek-chat-v3.1", OPENROUTER),
    )
}


def params(*names):
    """One parameter a door; a door whose library is not installed is skipped."""
    return [pytest.param(CASES[name], id=name) for name in names or CASES]


def start(running, case, script=None, **options):
    pytest.importorskip(case.needs)
    server = running.enter_context(FaultServer(script, wire=case.wire))
    return server, case.make(server, **options)
