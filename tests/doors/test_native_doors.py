"""How a native door is opened: names, keys, addresses."""

import subprocess
import sys

import pytest

pytest.importorskip("pydantic_ai")
pytest.importorskip("anthropic")

from redraft import registry
from redraft.config import resolve_lm
from redraft.errors import ConfigError
from redraft.lm import native
from redraft.lm.native import table
from redraft.protocols import LM
from redraft.testing import FaultServer
from redraft.testing.wire_anthropic import ANTHROPIC
from redraft.types import Request

pytestmark = pytest.mark.doors


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for door in table.DOORS.values():
        for name in door.keys:
            monkeypatch.delenv(name, raising=False)


def test_a_key_is_needed_and_named():
    with pytest.raises(ConfigError, match="no API key for anthropic/claude-haiku-4-5: set ANTHROPIC_API_KEY"):
        native.anthropic("claude-haiku-4-5")
    with pytest.raises(ConfigError, match="GOOGLE_API_KEY or GEMINI_API_KEY"):
        native.google("gemini-2.5-flash")


def test_a_key_of_the_environment_will_do(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    lm = resolve_lm("anthropic/claude-haiku-4-5")
    assert isinstance(lm, LM)
    assert (lm.name, lm.address) == ("anthropic/claude-haiku-4-5", "https://api.anthropic.com")
    assert lm.max_output == 64_000
    assert resolve_lm("anthropic:claude-haiku-4-5").name == lm.name


@pytest.mark.parametrize("name", sorted(table.DOORS))
def test_every_door_opens(name, monkeypatch):
    door = table.DOORS[name]
    pytest.importorskip(door.module)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    for key in door.keys:
        monkeypatch.setenv(key, "k")
    if name == "google-cloud":
        monkeypatch.setenv("GOOGLE_API_KEY", "k")
    model = "deepseek/deepseek-chat-v3.1" if name == "openrouter" else door.model or "some-model"
    lm = registry.find("models", name)(model)
    assert lm.name == f"{name}/{model}"
    assert lm.address


def test_bedrock_says_what_it_lacks(monkeypatch):
    pytest.importorskip("boto3")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigError, match="set AWS_REGION"):
        native.bedrock("us.amazon.nova-lite-v1:0")


def test_a_base_url_is_checked():
    with pytest.raises(ConfigError, match="must begin with http"):
        native.anthropic("claude-haiku-4-5", base_url="localhost:80")


async def test_no_proxy_stands_before_a_server_on_this_machine(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with FaultServer(wire=ANTHROPIC) as server:
        lm = native.anthropic("claude-haiku-4-5", base_url=server.base_url)
        reply = await lm.generate(Request(messages=({"role": "user", "content": "x"},), max_tokens=9))
    assert reply.text == "ok"


def test_opening_one_imports_no_other_providers_library():
    script = (
        "import sys; from redraft.lm import native;"
        "native.anthropic('claude-haiku-4-5', api_key='k');"
        "sys.exit(bool({'google.genai', 'boto3', 'groq', 'mistralai', 'cohere'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
