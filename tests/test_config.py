"""Settings: where the model comes from, who sees what is configured, what is refused."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from redraft import Predict, Refine, SqliteStore, config, configure, context, registry
from redraft.budget import Budget
from redraft.config import EMBEDDED, project_file, resolve_lm, settings, store_in_force
from redraft.errors import ConfigError
from redraft.journal import MemoryStore
from redraft.testing import ScriptedLM

URL, OTHER_URL = "http://localhost:9/v1", "http://localhost:8/v1"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """A folder, an environment and a process without settings."""
    for name in ("REDRAFT_MODEL", "REDRAFT_STORE", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(config, "_process", config.Settings())
    monkeypatch.setattr(config, "_lms", {})
    monkeypatch.setattr(config, "_resolved", {})
    monkeypatch.setattr(config, "_told", set())
    monkeypatch.setattr(config, "_stores_said", {})
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    config.close_stores()


def where(lm):
    """The model's name, and the endpoint it is asked at."""
    return lm.name, getattr(getattr(lm, "_upstream", None), "base_url", None)


# where the model comes from: each source, without the ones before it


def everything(folder, monkeypatch):
    monkeypatch.setenv("REDRAFT_MODEL", "openai/from-env")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (folder / "redraft.toml").write_text('model = "openai/from-file"\n')


def test_the_order_of_the_sources(alone, monkeypatch, capsys):
    everything(alone, monkeypatch)
    configure(model="openai/from-configure")
    with context(model="openai/from-context"):
        assert resolve_lm("openai/from-argument").name == "openai/from-argument"
        assert resolve_lm().name == "openai/from-context"
    assert resolve_lm().name == "openai/from-configure"
    configure(model=None)
    assert resolve_lm().name == "openai/from-env"
    monkeypatch.delenv("REDRAFT_MODEL")
    assert resolve_lm().name == "openai/from-file"
    (alone / "redraft.toml").unlink()
    (alone / "pyproject.toml").write_text('[tool.redraft]\nmodel = "openai/from-pyproject"\n')
    configure()  # reads files anew
    assert resolve_lm().name == "openai/from-pyproject"
    (alone / "pyproject.toml").write_text("[tool.other]\n")
    configure()
    assert where(resolve_lm()) == ("openai/gpt-4.1-mini", "https://api.openai.com/v1")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    assert where(resolve_lm()) == ("openai/gpt-4.1-mini", URL)
    picked = capsys.readouterr().err.splitlines()
    assert [f"using gpt-4.1-mini of {whose}." in line for whose, line in zip(("OpenAI", URL), picked, strict=True)] == [
        True
    ] * 2
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert resolve_lm().name == EMBEDDED
    assert capsys.readouterr().err.count(EMBEDDED) == 1


def test_the_embedded_model_comes_with_one_notice(capsys):
    assert resolve_lm().name == EMBEDDED
    first = capsys.readouterr()
    resolve_lm()
    threading.Thread(target=resolve_lm).run()
    assert first.out == ""
    assert first.err.startswith("redraft: no model configured")
    assert "REDRAFT_MODEL" in first.err
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def native(monkeypatch):
    """A native provider that is installed, and answers to its name."""
    from redraft.lm.native import table

    monkeypatch.setattr(table, "installed", lambda module: True)
    monkeypatch.setattr(config, "_VARIABLES", [*config._VARIABLES])
    known = registry._KNOWN["models"]
    monkeypatch.setitem(known, "anthropic", lambda name, base_url=None: ScriptedLM(["x"], name=f"anthropic/{name}"))


def test_another_providers_key_comes_before_the_embedded_model_only(native, monkeypatch, capsys):
    assert resolve_lm().name == EMBEDDED
    capsys.readouterr()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")  # as a notebook does, having read the notice
    assert resolve_lm().name.startswith("anthropic/")
    assert "using anthropic/claude-haiku-4-5, whose key is set" in capsys.readouterr().err
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    assert where(resolve_lm()) == ("openai/gpt-4.1-mini", URL)
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert resolve_lm().name == EMBEDDED


def test_another_providers_key_is_nothing_without_its_libraries(monkeypatch, capsys):
    from redraft.lm.native import table

    monkeypatch.setattr(table, "installed", lambda module: False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert resolve_lm().name == EMBEDDED
    assert "ANTHROPIC_API_KEY is set, but needs pip install 'redraft[providers]'" in capsys.readouterr().err


def test_with_no_engine_and_no_key_there_is_one_error(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "xllamacpp" else find(name))
    with pytest.raises(ConfigError, match=r"no model configured: Name one.*redraft\[local\]"):
        resolve_lm()
    assert capsys.readouterr().err == ""


def test_the_notice_names_servers_that_were_found_and_uses_none(monkeypatch, capsys):
    from redraft.lm import servers

    found = servers.Server("ollama", "Ollama", "http://127.0.0.1:11434/v1", ("qwen2.5:7b", "phi4"))
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    monkeypatch.setattr(servers, "found", lambda: (found,))
    assert resolve_lm().name == EMBEDDED
    (notice,) = capsys.readouterr().err.splitlines()
    assert "Ollama at http://127.0.0.1:11434/v1 with qwen2.5:7b and 1 more: -m ollama/qwen2.5:7b" in notice


def test_a_configured_model_looks_for_no_servers(monkeypatch):
    from redraft.lm import servers

    monkeypatch.setattr(servers, "found", lambda: pytest.fail("nobody asked"))
    resolve_lm("openai/x", URL)
    resolve_lm(EMBEDDED)


def test_an_lm_is_taken_as_it_is():
    lm = ScriptedLM(["x"])
    assert resolve_lm(lm) is lm
    with context(model=lm):
        assert resolve_lm() is lm


def test_the_same_name_is_the_same_object():
    assert resolve_lm("openai/x", URL) is resolve_lm("openai/x", URL)
    assert resolve_lm("openai/x", URL) is not resolve_lm("openai/x", OTHER_URL)
    assert resolve_lm("openai/x", URL) is not resolve_lm("openai/y", URL)


def key_of(lm):
    return lm._upstream.api_key


def test_a_key_that_was_mended_is_used_at_once(alone, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    before = resolve_lm("openai/x")
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    assert (key_of(before), key_of(resolve_lm("openai/x"))) == ("wrong", "right")
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    assert resolve_lm("openai/x") is before
    (alone / "redraft.toml").write_text('model = "openai/y"\napi_key_env = "MY_KEY"\n')
    configure()
    for key in ("one", "two"):
        monkeypatch.setenv("MY_KEY", key)
        assert key_of(resolve_lm()) == key


def test_what_else_a_model_was_made_with_counts_as_well(tmp_path, monkeypatch):
    for key in ("one", "two"):
        monkeypatch.setenv("VLLM_API_KEY", key)
        assert key_of(resolve_lm("vllm/x")) == key
    for host in ("127.0.0.1:7", "127.0.0.1:8"):
        monkeypatch.setenv("OLLAMA_HOST", host)
        assert where(resolve_lm("ollama/x")) == ("ollama/x", f"http://{host}/v1")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)  # no engine is started here
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
        monkeypatch.setenv("REDRAFT_LOCAL_MODEL", str(tmp_path / f"{name}.gguf"))
        assert resolve_lm(EMBEDDED).name == f"local/{name}"
    monkeypatch.delenv("REDRAFT_LOCAL_MODEL")
    for folder in (tmp_path / "c", tmp_path / "d"):
        folder.mkdir()
        (folder / "own.gguf").write_bytes(b"GGUF")
        monkeypatch.chdir(folder)
        assert resolve_lm("local/own.gguf")._spec.path == folder / "own.gguf"


def test_empty_variables_count_as_unset(monkeypatch, capsys):
    for name in ("REDRAFT_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "")
    assert resolve_lm().name == EMBEDDED
    with pytest.raises(ConfigError, match="no endpoint"):
        resolve_lm("Qwen/Qwen3-8B")


def test_a_base_url_keeps_the_configured_model(monkeypatch):
    monkeypatch.setenv("REDRAFT_MODEL", "Qwen/Qwen3-8B")
    assert where(resolve_lm(base_url=URL)) == ("openai/Qwen/Qwen3-8B", URL)
    with context(base_url=URL):
        assert where(resolve_lm()) == ("openai/Qwen/Qwen3-8B", URL)
    with context(model="mine"):
        assert where(resolve_lm(base_url=URL)) == ("openai/mine", URL)


def test_a_model_keeps_the_configured_base_url(alone, monkeypatch):
    with context(base_url=URL):
        assert where(resolve_lm("Qwen/Qwen3-8B")) == ("openai/Qwen/Qwen3-8B", URL)
    (alone / "redraft.toml").write_text(f'base_url = "{OTHER_URL}"\nmodel = "from-file"\n')
    assert where(resolve_lm()) == ("openai/from-file", OTHER_URL)
    assert where(resolve_lm("mine")) == ("openai/mine", OTHER_URL)
    assert where(resolve_lm("mine", URL)) == ("openai/mine", URL)
    monkeypatch.setenv("REDRAFT_MODEL", "from-env")
    assert where(resolve_lm()) == ("openai/from-env", OTHER_URL)


def test_a_local_model_ignores_openais_endpoint(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    assert where(resolve_lm(EMBEDDED)) == (EMBEDDED, None)


def test_a_base_url_without_model_asks_the_default():
    assert where(resolve_lm(base_url=URL)) == ("openai/gpt-4.1-mini", URL)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "gpt-4.1", "OpenAI/gpt-4.1"])
def test_an_unknown_model_without_endpoint_says_what_to_do(name):
    with pytest.raises(ConfigError, match=r"unknown model.*--base-url.*openai") as caught:
        resolve_lm(name)
    assert name in str(caught.value)


def test_an_unknown_model_with_a_key_is_openais(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert where(resolve_lm("gpt-4.1")) == ("openai/gpt-4.1", "https://api.openai.com/v1")


@pytest.mark.parametrize("name", ["local/", "ollama:", "ollama", " anthropic/ "])
def test_half_a_name_sends_no_prompt_to_openai(name, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(ConfigError, match="names no model"):
        resolve_lm(name)


def test_space_around_a_name_or_a_url_counts_for_nothing(monkeypatch):
    monkeypatch.setenv("REDRAFT_MODEL", " openai/x\n")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{URL}\n")
    assert where(resolve_lm()) == ("openai/x", URL)
    assert where(resolve_lm("ollama", URL)) == ("openai/ollama", URL), "a server may call its model what it likes"


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_a_blank_name_is_refused(name):
    with pytest.raises(ConfigError, match="empty"):
        resolve_lm(name)


# files


def test_the_nearest_file_counts(alone, monkeypatch):
    inner = alone / "a" / "b"
    inner.mkdir(parents=True)
    (alone / "redraft.toml").write_text('model = "openai/outer"\n')
    (alone / "a" / "pyproject.toml").write_text("[project]\n")  # no [tool.redraft]: further up
    monkeypatch.chdir(inner)
    assert project_file() == {"model": "openai/outer"}
    (inner / "pyproject.toml").write_text('[tool.redraft]\nmodel = "openai/inner"\n')
    assert project_file() == {"model": "openai/inner"}
    (inner / "redraft.toml").write_text('model = "openai/own"\n')
    assert project_file() == {"model": "openai/own"}


def test_a_key_may_have_another_name(alone, monkeypatch):
    (alone / "redraft.toml").write_text(f'model = "mine"\nbase_url = "{URL}"\napi_key_env = "MY_KEY"\n')
    monkeypatch.setenv("MY_KEY", "secret-one")
    monkeypatch.setenv("OPENAI_API_KEY", "secret-two")
    lm = resolve_lm()
    assert lm._upstream.api_key == "secret-one"
    assert "secret" not in repr(lm._upstream)


@pytest.mark.parametrize("name", ["redraft.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('api_key = "sk-123"', "environment only"),
        ("model = 5", "model must be a text"),
        ('model = ""', "model must be a text"),
        ('modle = "x"', "no setting named 'modle'"),
        ('base_url = ["x"]', "base_url must be a text"),
        ("model =", "cannot be read as TOML"),
    ],
)
def test_a_bad_file_is_named(alone, name, content, says):
    (alone / name).write_text(("[tool.redraft]\n" if name == "pyproject.toml" else "") + content + "\n")
    with pytest.raises(ConfigError, match=says) as caught:
        resolve_lm()
    assert name in str(caught.value)
    assert "sk-123" not in str(caught.value), "a key is not repeated in a message"


@pytest.mark.parametrize("content", ['[tool]\nredraft = "x"\n', "[[tool.redraft]]\n"])
def test_a_table_that_is_none(alone, content):
    (alone / "pyproject.toml").write_text(content)
    with pytest.raises(ConfigError, match="must be a table"):
        resolve_lm()


def test_a_named_model_needs_no_file(alone):
    """Somebody else's broken pyproject.toml above us is no reason to fail."""
    (alone / "pyproject.toml").write_text("this is no TOML")
    assert resolve_lm("openai/x", URL).name == "openai/x"


# configure and context


def test_configure_changes_only_what_is_said():
    store = MemoryStore()
    configure(budget=Budget(calls=3), seed=7)
    configure(store=store)
    assert (settings().budget, settings().seed, settings().store) == (Budget(calls=3), 7, store)


def test_contexts_nest_and_end():
    with context(seed=1, tries=2) as outer:
        assert (outer.seed, outer.tries) == (1, 2)
        with context(seed=3) as inner:
            assert (inner.seed, inner.tries) == (3, 2)
        assert settings().seed == 1
    assert settings() == config.Settings()


def test_a_context_ends_with_an_error_too():
    with pytest.raises(ZeroDivisionError), context(seed=1):
        raise ZeroDivisionError
    assert settings().seed is None


def test_configure_inside_a_context_shows_where_the_context_is_silent():
    with context(seed=1):
        configure(seed=2, tries=9)
        assert (settings().seed, settings().tries) == (1, 9)
    assert settings().seed == 2


def test_other_threads_do_not_see_a_context():
    seen = []
    with context(seed=1):
        thread = threading.Thread(target=lambda: seen.append(settings().seed))
        thread.start()
        thread.join()
    assert seen == [None]


def test_threads_have_contexts_of_their_own():
    barrier, seen = threading.Barrier(8), {}

    def work(i):
        with context(seed=i):
            barrier.wait()
            seen[i] = settings().seed
            barrier.wait()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {i: i for i in range(8)}


async def test_tasks_have_contexts_of_their_own():
    async def work(i):
        with context(model=ScriptedLM([f"reply {i}"])):
            await asyncio.sleep(0)
            return (await Predict("q -> a").acall(q="x")).a

    assert await asyncio.gather(*(work(i) for i in range(8))) == [f"reply {i}" for i in range(8)]
    assert settings().model is None


def test_settings_reach_a_run():
    events, store = [], MemoryStore()
    lm = ScriptedLM(["a", "b"])
    with context(model=lm, budget=Budget(calls=1), store=store, seed=5, listeners=(events.append,)):
        result = Refine("topic -> review", N=2, reward_fn=lambda args, pred: 0.0)(topic="x")
    assert result.stop_reason == "budget"
    assert [e.kind for e in store.read(result.run_id)] == [e.kind for e in events]
    assert events[0].data["seed"] == 5


def test_an_argument_comes_before_the_settings():
    with context(model=ScriptedLM(["wrong"]), budget=Budget(calls=1)):
        refine = Refine(
            Predict("q -> a", lm=ScriptedLM(["a", "b"])), N=2, budget=Budget(calls=2), reward_fn=lambda *_: 0
        )
        assert refine(q="x").usage.calls == 2


def in_context(**changes):
    with context(**changes):
        pass


@pytest.mark.parametrize("scope", [configure, in_context])
@pytest.mark.parametrize(
    "changes",
    [
        {"modle": "x"},
        {"model": 5},
        {"base_url": 5},
        {"budget": 5},
        {"budget": None},
        {"store": 5},
        {"seed": "x"},
        {"tries": 0},
        {"tries": "4"},
        {"listeners": print},
        {"listeners": (5,)},
    ],
)
def test_bad_settings_are_refused(scope, changes):
    (name,) = changes
    with pytest.raises(ConfigError, match=name):
        scope(**changes)
    assert settings() == config.Settings(), "nothing was changed"


def test_an_unknown_setting_lists_the_known():
    with pytest.raises(ConfigError, match="model, base_url, budget, store, seed, tries, listeners, strict"):
        configure(modle="x")


def test_a_makers_name_on_a_given_server_is_asked_there(tmp_path, monkeypatch):
    lm = resolve_lm("google/gemma-3-4b", "http://127.0.0.1:8000/v1")
    assert (type(lm).__name__, lm.name) == ("OpenAILM", "openai/google/gemma-3-4b")
    (tmp_path / "redraft.toml").write_text('model = "mistral/small"\nbase_url = "http://127.0.0.1:8000/v1"\n')
    monkeypatch.chdir(tmp_path)
    assert resolve_lm().name == "openai/mistral/small"


def test_a_provider_that_is_nearly_right_is_offered():
    with pytest.raises(ConfigError, match=r"did you mean openai/gpt-4.1\?"):
        resolve_lm("OpenAI/gpt-4.1")


# where runs are kept


def place():
    store = store_in_force()
    return None if store is None else Path(store.path).name


def test_the_order_of_the_places(alone, monkeypatch):
    assert place() is None, "in memory"
    (alone / "redraft.toml").write_text('store = "file.db"\n')
    configure()
    assert place() == "file.db"
    monkeypatch.setenv("REDRAFT_STORE", "variable.db")
    assert place() == "variable.db"
    configure(store="configured.db")
    with context(store=Path("context.db")):
        assert place() == "context.db"
    assert place() == "configured.db"
    assert Path(store_in_force("argument.db").path).name == "argument.db"
    with context(store=None):
        assert place() is None, "None says: in memory, whatever else is configured"
    with context(store=""):
        assert place() == "variable.db"
    store = MemoryStore()
    with context(store=store):
        assert store_in_force() is store


def test_a_path_is_opened_once_and_means_what_it_meant(alone, monkeypatch):
    (alone / "deep").mkdir()
    (alone / "redraft.toml").write_text('store = "kept/runs.db"\n')
    monkeypatch.chdir(alone / "deep")
    from_file = store_in_force()
    assert Path(from_file.path) == alone / "kept" / "runs.db", "seen from the file"
    assert store_in_force(alone / "kept" / "runs.db") is from_file
    configure(store="here.db")
    monkeypatch.chdir(alone)
    assert Path(store_in_force().path) == alone / "deep" / "here.db"
    assert store_in_force() is store_in_force()


def test_runs_are_kept_where_a_path_says(alone):
    with context(model=ScriptedLM(["a"]), store=alone / "runs.db"):
        result = Refine(Predict("q -> a"), N=1, reward_fn=lambda *_: 1)(q="x")
        assert [e.kind for e in store_in_force().read(result.run_id)] == [e.kind for e in result.events]
    config.close_stores()
    assert {file.name for file in alone.iterdir()} == {"runs.db"}
    with SqliteStore(alone / "runs.db") as store:
        assert store.run_ids() == [result.run_id]


def test_the_usual_place_is_kept_out_of_repositories(alone):
    store_in_force(config.DEFAULT_STORE).read("")
    assert (alone / ".redraft" / ".gitignore").read_text() == "*\n"
    store_in_force("elsewhere/runs.db").read("")
    assert [file.name for file in (alone / "elsewhere").glob(".*")] == []


def test_a_process_that_ends_closes_its_stores_and_caches(alone):
    script = """
import redraft
from redraft.testing import ScriptedLM
redraft.configure(model=ScriptedLM(["a"]), store="runs.db", cache="replies.db")
redraft.Refine(redraft.Predict("q -> a"), N=1, reward_fn=lambda *_: 1)(q="x")
"""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, stderr=subprocess.PIPE)
    assert ended.stderr == b""
    assert {file.name for file in alone.iterdir()} == {"runs.db", "replies.db"}
