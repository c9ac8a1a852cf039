"""`redraft models`: the catalogue on the command line. Nothing is fetched here."""

import pytest

from redraft import registry
from redraft.testing import FunctionLM, ScriptedLM
from redraft.types import Capabilities, Choice, Completion, Usage


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model_file(tmp_path, monkeypatch):
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"GGUF and so on")
    monkeypatch.setenv("REDRAFT_LOCAL_MODEL", str(file))
    return file


def test_list_says_what_there_is_and_whether_it_is_here(redraft, cache):
    said = redraft("models", "list")
    assert said.exit_code == 0
    first, *more, last = said.stdout.splitlines()
    assert first.split()[:4] == ["local/smollm2-135m", "98", "MB", "Apache-2.0"]
    assert first.endswith("not here yet: redraft models pull smollm2-135m")
    assert "local/..." in last
    assert "openai/..." in last
    assert "ollama/..." in last
    verdicts = [line.split()[0] for line in more if "hf:" in line]
    assert len(verdicts) > 3
    assert verdicts.count("recommended") <= 1


def test_list_shows_servers_found_and_models_pulled(redraft, cache, monkeypatch):
    from redraft.lm import hub, servers

    monkeypatch.setattr(
        servers, "found", lambda: (servers.Server(None, "some server", "http://127.0.0.1:1/v1", ("m",)),)
    )
    name = hub.parse("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf")
    name.path.parent.mkdir(parents=True)
    name.path.write_bytes(b"GGUF")
    hub.write_note(name, [4], {"licence": "apache-2.0"})
    said = redraft("models", "list").stdout
    assert "found some server at http://127.0.0.1:1/v1 with m: -m m --base-url http://127.0.0.1:1/v1\n" in said
    assert f"{name.model}  0 MB  apache-2.0  here\n" in said
    assert f"hf:{name}" not in said, "what is here is not to be fetched"
    assert redraft("models", "rm", name.model).exit_code == 0
    assert not name.path.exists()
    assert f"hf:{name}" in redraft("models", "list").stdout
    assert redraft("models", "rm", name.model).exit_code == 2


@pytest.mark.parametrize("name", ["hf:a/b/c.safetensors", "hf:nothing"])
def test_pull_of_what_is_no_name_says_the_forms(redraft, cache, name):
    said = redraft("models", "pull", name)
    assert said.exit_code == 2
    assert "hf:OWNER/REPO/FILE.gguf" in said.stderr


@pytest.mark.parametrize("name", [(), ("smollm2-135m",), ("local/smollm2-135m",)])
def test_path_prints_where_the_model_will_lie(redraft, cache, name):
    said = redraft("models", "path", *name)
    assert said.exit_code == 0
    assert said.stdout.startswith(f"{cache}/models/smollm2-135m-")
    assert said.stderr == ""


@pytest.mark.parametrize("name", ["smollm2-135m", "local/smollm2-135m"])
def test_rm_of_the_embedded_model_says_which_file_to_delete(redraft, cache, name):
    said = redraft("models", "rm", name)
    assert said.exit_code == 2
    assert "smollm2-135m-b179c952.gguf" in said.stderr


def test_pull_prints_the_file_that_is_there(redraft, model_file):
    said = redraft("models", "pull")
    assert (said.exit_code, said.stdout) == (0, f"{model_file}\n")


def test_pull_of_a_file_that_is_no_model(redraft, model_file):
    model_file.write_bytes(b"version https://git-lfs")
    said = redraft("models", "pull")
    assert said.exit_code == 2
    assert "is not a GGUF model" in said.stderr


def test_check_counts_what_it_spent(redraft):
    registry.register("models", "scripted", lambda name, base_url=None: ScriptedLM(["red"] * 20))
    said = redraft("models", "check", "scripted/for-check")
    assert said.exit_code == 4  # "red" is no JSON, and no yes or no
    assert "temperature  yes       taken" in said.stdout
    assert "tools        yes       not called: 'red'" in said.stdout
    assert "reasoning    yes       none came" in said.stdout
    assert said.stdout.splitlines()[-1].startswith("12 calls | ")


def test_check_says_what_is_known_before_it_calls(redraft):
    def reply(request):
        if request.tools:
            call = {"id": "1", "type": "function", "function": {"name": "paint", "arguments": '{"colour": "red"}'}}
            return Completion(choices=(Choice(tool_calls=(call,), finish_reason="tool_calls"),), usage=Usage())
        return Completion(choices=(Choice(text="red", reasoning="Which one?"),), usage=Usage(reasoning_tokens=3))

    plain = Capabilities(tools=True)
    registry.register("models", "scripted", lambda name, base_url=None: FunctionLM(reply, capabilities=plain))
    said = redraft("models", "check", "scripted/for-tools")
    assert said.exit_code == 0
    assert said.stdout.splitlines()[1] == "longest reply not known | 64 calls at once | free"
    assert "tools        yes       called\n" in said.stdout
    assert "reasoning    no        came with 2 of 3 replies\n" in said.stdout, "seen, at no further cost"


def test_check_of_a_model_that_does_not_answer(redraft):
    registry.register("models", "scripted", lambda name, base_url=None: ScriptedLM([]))
    said = redraft("models", "check", "scripted/silent")
    assert said.exit_code == 1
    assert said.stderr.startswith("redraft: scripted was called 1 times")
