"""Names to things: lazily, with plug-ins, and with help for the mistyped."""

from __future__ import annotations

import sys

import pytest

from redraft import registry
from redraft.errors import UnknownNameError


@pytest.fixture
def clean(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_KNOWN", {kind: dict(names) for kind, names in registry._KNOWN.items()})


@pytest.mark.parametrize("kind", ["models", "strategies", "checks"])
def test_every_known_name_resolves(kind):
    for name in registry.names(kind):
        assert callable(registry.find(kind, name))


def test_names_are_sorted():
    assert registry.names("checks") == sorted(registry.names("checks"))
    assert {"contains", "forbids", "json_schema", "sentences", "words"} <= set(registry.names("checks"))
    assert {"best-of-n", "refine", "reflect", "self-refine"} <= set(registry.names("strategies"))
    assert {"local", "openai"} <= set(registry.names("models"))


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("strategies", "refin", "no strategy named 'refin'. Did you mean 'refine'? Known strategies: best-of-n, "),
        ("checks", "word", "no check named 'word'. Did you mean 'words'? Known checks: bullets, "),
        ("models", "zzz", "no model named 'zzz'. Known models: "),
        ("checks", "", "no check named ''. Known checks: "),
        ("checks", "Words", "no check named 'Words'. Did you mean 'words'?"),
    ],
)
def test_an_unknown_name_lists_the_known(kind, name, says):
    with pytest.raises(UnknownNameError) as caught:
        registry.find(kind, name)
    assert str(caught.value).startswith(says)


def test_an_unknown_kind_is_no_key_error():
    with pytest.raises(UnknownNameError, match="models, strategies"):
        registry.find("model", "openai")


def test_register_a_thing_or_its_place(clean, tmp_path, monkeypatch):
    (tmp_path / "late_plugin.py").write_text("def lm(model, *, base_url=None): return model\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.register("models", "now", len)
    registry.register("models", "later", "late_plugin:lm")
    assert registry.find("models", "now") is len
    assert "late_plugin" not in sys.modules, "nothing is imported before its name is asked for"
    assert registry.find("models", "later")("x") == "x"
    assert registry.find("models", "later") is registry.find("models", "later")
    assert registry.split_model("later/x") == ("later", "x")
    del sys.modules["late_plugin"]


def test_register_replaces(clean):
    registry.register("checks", "words", len)
    assert registry.find("checks", "words") is len


def test_entry_points_of_a_plug_in_package(clean, tmp_path, monkeypatch):
    (tmp_path / "acme_redraft.py").write_text(
        "def lm(model, *, base_url=None): return ('acme', model)\nclass Haiku: pass\n"
    )
    info = tmp_path / "acme_redraft-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-redraft\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[redraft.models]\nacme = acme_redraft:lm\n[redraft.checks]\nhaiku = acme_redraft:Haiku\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "acme" in registry.names("models")
    assert registry.find("models", "acme")("x") == ("acme", "x")
    assert registry.split_model("acme/x") == ("acme", "x")
    assert registry.find("checks", "haiku").__name__ == "Haiku"
    sys.modules.pop("acme_redraft")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("openai/gpt-4.1", ("openai", "gpt-4.1")),
        ("openai:gpt-4.1", ("openai", "gpt-4.1")),
        ("openai/org/model", ("openai", "org/model")),
        ("openai:ft:gpt:me", ("openai", "ft:gpt:me")),
        ("local/smollm2-135m", ("local", "smollm2-135m")),
        ("local:/models/x.gguf", ("local", "/models/x.gguf")),
        ("Qwen/Qwen3-8B", (None, "Qwen/Qwen3-8B")),
        ("llama3.2:1b", (None, "llama3.2:1b")),
        ("gpt-4.1", (None, "gpt-4.1")),
        ("openai/", (None, "openai/")),
        ("/gpt", (None, "/gpt")),
        ("", (None, "")),
        ("OpenAI/gpt", (None, "OpenAI/gpt")),
    ],
)
def test_a_models_name_is_split_only_on_a_known_provider(name, parts):
    assert registry.split_model(name) == parts


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("google/gemma-3-4b", (None, "google/gemma-3-4b")),
        ("anthropic/claude-haiku-4-5", (None, "anthropic/claude-haiku-4-5")),
        ("anthropic:claude-haiku-4-5", ("anthropic", "claude-haiku-4-5")),
        ("openai/gpt-4.1-mini", ("openai", "gpt-4.1-mini")),
        ("vllm/google/gemma-3-4b", ("vllm", "google/gemma-3-4b")),
    ],
)
def test_a_server_that_is_given_may_use_a_makers_name_itself(name, parts):
    assert registry.split_model(name, "http://127.0.0.1:8000/v1") == parts
