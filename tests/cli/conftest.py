"""A shell to type into: the command line in this process on a scripted model, or as a process of its own."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from redraft import registry
from redraft.cli import main
from redraft.testing import ScriptedLM

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch, tmp_path):
    """No key, no server (and none looked for), no project file."""
    for name in [n for n in os.environ if n.startswith(("OPENAI_", "REDRAFT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDRAFT_DISCOVER", "0")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def redraft():
    """`redraft("run", "Write", ..., replies=[...])` in this process; `replies` come from the model `-m` names."""
    models = {}
    registry.register("models", "scripted", lambda name, base_url=None: models[name])

    def call(*args, replies=None, lm=None, charset="utf-8", **more):
        if replies is not None or lm is not None:
            name = str(next(NUMBERS))
            models[name] = lm or ScriptedLM(replies)
            args = (*args, "-m", f"scripted/{name}")
        return CliRunner(charset=charset).invoke(main, args, **more)

    yield call
    del registry._KNOWN["models"]["scripted"]


@pytest.fixture
def start():
    """`start("run", ...)` as a process; it is killed when the test ends."""
    started = []

    def begin(*args, **more):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-m", "redraft", *args], **{**streams, "text": True, **more})
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def until():
    def wait(condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.005)

    return wait


@pytest.fixture
def stopped(until):
    """Sends a signal and returns exit code, stdout, stderr and the seconds until the process had ended."""

    def stop(process, number=signal.SIGINT):
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        return process.returncode, out, err, time.monotonic() - began

    return stop
