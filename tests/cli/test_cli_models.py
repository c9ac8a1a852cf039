"""`redraft models`: the catalogue on the command line. Nothing is fetched here."""

import pytest

from redraft import registry
from redraft.testing import ScriptedLM


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
    first, *_, last = said.stdout.splitlines()
    assert first.split()[:4] == ["local/smollm2-135m", "98", "MB", "Apache-2.0"]
    assert first.endswith("not here yet: redraft models pull smollm2-135m")
    assert "local/..." in last
    assert "openai/..." in last


@pytest.mark.parametrize("name", [(), ("smollm2-135m",), ("local/smollm2-135m",)])
def test_path_prints_where_the_model_will_lie(redraft, cache, name):
    said = redraft("models", "path", *name)
    assert said.exit_code == 0
    assert said.stdout.startswith(f"{cache}/models/smollm2-135m-")
    assert said.stderr == ""


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
    assert said.stdout.splitlines()[-1].startswith("10 calls | ")


def test_check_of_a_model_that_does_not_answer(redraft):
    registry.register("models", "scripted", lambda name, base_url=None: ScriptedLM([]))
    said = redraft("models", "check", "scripted/silent")
    assert said.exit_code == 1
    assert said.stderr.startswith("redraft: scripted was called 1 times")
