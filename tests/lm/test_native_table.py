"""The table of native providers and what is said without their libraries: needs none of them."""

import subprocess
import sys

import pytest

from redraft import registry
from redraft.errors import ConfigError
from redraft.lm import native
from redraft.lm.native import install, table


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for door in table.DOORS.values():
        for name in door.keys:
            monkeypatch.delenv(name, raising=False)


def there(monkeypatch, *modules):
    monkeypatch.setattr(table, "installed", lambda module: module in modules)
    monkeypatch.setattr(install, "installed", lambda module: module in modules)


def test_every_provider_is_in_the_registry_and_the_other_way_round():
    assert set(registry._NATIVE) == set(table.DOORS)


def test_openai_stays_chat_completions_and_responses_is_a_deliberate_choice():
    assert "openai" not in table.DOORS
    assert registry.split_model("openai-responses/gpt-5-mini") == ("openai-responses", "gpt-5-mini")
    assert registry.split_model("anthropic:claude-haiku-4-5") == ("anthropic", "claude-haiku-4-5")
    assert registry.split_model("google-cloud/gemini-2.5-flash")[0] == "google-cloud"


def test_a_missing_library_is_said_with_the_command(monkeypatch):
    there(monkeypatch)
    with pytest.raises(
        ConfigError, match=r"anthropic/\.\.\. needs the package pydantic-ai-slim: pip install 'redraft\["
    ):
        native.anthropic("claude-haiku-4-5")
    there(monkeypatch, "pydantic_ai")
    with pytest.raises(ConfigError, match=r"needs the package groq: pip install 'redraft\[providers\]'"):
        native.groq("openai/gpt-oss-20b")
    with pytest.raises(ConfigError, match=r"needs the package xai-sdk: pip install 'redraft\[providers\]' xai-sdk"):
        native.xai("grok-4.7")


def test_versions_that_do_not_fit_are_said_with_both(monkeypatch):
    there(monkeypatch, "pydantic_ai", "anthropic")
    versions = {"anthropic": "0.86.0", "pydantic-ai-slim": "2.68.0"}
    monkeypatch.setattr(install, "version", versions.__getitem__)
    monkeypatch.setattr(install, "requires", lambda name: ["httpx2>=2.7", "anthropic>=1.15.0; extra == 'anthropic'"])
    with pytest.raises(ConfigError) as caught:
        native.anthropic("claude-haiku-4-5")
    said = str(caught.value)
    assert "pydantic-ai-slim 2.68.0 needs anthropic>=1.15.0, and anthropic 0.86.0 is installed" in said
    assert "pip install 'anthropic>=1.15.0'" in said


@pytest.mark.parametrize(
    ("found", "wanted", "fit"),
    [
        ("1.15.0", ">=1.15.0", True),
        ("1.14.9", ">=1.15.0", False),
        ("2.0", ">=1.15.0", True),
        ("3.0.0", "<3,>=2.30.0", False),
        ("3", "<3.0.0", False),
        ("2.34.0", "<3,>=2.30.0", True),
        ("2.4.0rc1", ">=2.4", True),
    ],
)
def test_bounds(found, wanted, fit):
    assert install.fits(found, wanted) is fit


def test_without_a_key_no_provider_is_configured(monkeypatch):
    there(monkeypatch, "pydantic_ai", "anthropic", "google.genai")
    assert table.configured() is None


def test_a_key_and_its_libraries_configure_a_provider(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    there(monkeypatch, "google.genai")
    assert table.configured() is None, "pydantic-ai is missing"
    there(monkeypatch, "pydantic_ai", "google.genai")
    assert table.configured() == "google/gemini-3.5-flash-lite"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert table.configured() == "google/gemini-3.5-flash-lite", "anthropic's own library is missing"
    there(monkeypatch, "pydantic_ai", "google.genai", "anthropic")
    assert table.configured() == "anthropic/claude-haiku-4-5"


def test_there_is_no_door_of_another_name():
    with pytest.raises(AttributeError):
        _ = native.no_such_provider


def test_the_table_imports_none_of_the_libraries():
    script = (
        "import sys, redraft.lm.native.table as t; t.configured();"
        "sys.exit(bool({'pydantic_ai', 'anthropic', 'google.genai', 'boto3', 'groq', 'mistralai'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
