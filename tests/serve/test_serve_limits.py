"""Keys, rates, budgets, places, draining: what a server refuses, and how it says so."""

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import httpx2
import pytest
from serve_house import ASKED, BAD, GOOD, THREE, serving

from redraft.errors import ConfigError
from redraft.server.gate import Gate
from redraft.server.keys import Keys
from redraft.server.refusal import Refusal
from redraft.server.serving import plans_of, serve
from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve


def keys_file(tmp_path, text):
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_key_has_a_rate(tmp_path):
    path = keys_file(tmp_path, '[ann]\nkey = "a"\nrate = 2\n[bob]\nkey = "b"\n')
    with FaultServer() as up, serving(up, server={"keys_file": path}) as served:
        told = [served.chat("test", headers={"x-api-key": "a"}) for _ in range(3)]
        other = served.chat("test", headers={"x-api-key": "b"})
    assert [r.status_code for r in told] == [200, 200, 429]
    assert 0 < int(told[2].headers["retry-after"]) <= 30
    assert other.status_code == 200


def test_a_keys_budget_holds_within_a_run_and_after_it(tmp_path):
    path = keys_file(tmp_path, '[ann]\nkey = "a"\ncalls = 4\n')
    headers = {"x-api-key": "a"}
    with FaultServer(lambda _: BAD) as up, serving(up, {"three": THREE}, server={"keys_file": path}) as served:
        first = served.chat("refine/three", headers=headers)
        second = served.chat("refine/three", headers=headers)
        third = served.chat("test", headers=headers)
    assert first.headers["x-redraft-calls"] == "3"
    assert second.headers["x-redraft-stop-reason"] == "budget"
    assert third.status_code == 429
    assert third.json()["error"]["code"] == "budget_exceeded"
    assert up.calls == 4


def test_what_passes_through_counts_on_the_keys_budget(tmp_path):
    path = keys_file(tmp_path, '[ann]\nkey = "a"\ntokens = 10\n')
    headers = {"x-api-key": "a"}
    with FaultServer(lambda _: "one two three four five six") as up, serving(up, server={"keys_file": path}) as served:
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        told = [served.chat("test", headers=headers, **more).status_code for more in ({}, stream, {})]
    assert told == [200, 200, 429]


def test_a_key_by_its_digest_and_by_its_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("BOBS", "b")
    digest = hashlib.sha256(b"a").hexdigest()
    keys = Keys.read(keys_file(tmp_path, f'[ann]\nsha256 = "{digest}"\n[bob]\nkey_env = "BOBS"\n'))
    assert keys.whose({"authorization": "Bearer a"}).name == "ann"
    assert keys.whose({"x-api-key": "b"}).name == "bob"
    with pytest.raises(Refusal):
        keys.whose({"x-api-key": digest})


@pytest.mark.parametrize(
    "text", ["[ann]", '[ann]\nkey = ""', '[ann]\nkey = "a"\nspeed = 1', '[ann]\nkey = "a"\nrate = 0', "ann = 1", "["]
)
def test_a_wrong_keys_file_is_said_at_the_start(tmp_path, text):
    with pytest.raises(ConfigError):
        Keys.read(keys_file(tmp_path, text))


def test_one_more_than_there_is_room_for_is_told_to_come_back():
    slow = Reply(text=GOOD, delay=1.5)
    with FaultServer(lambda _: slow) as up, serving(up, server={"active": 1, "waiting": 1}) as served:
        told = []

        def ask():
            told.append(served.chat("test"))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    statuses = sorted(r.status_code for r in told)
    assert statuses == [200, 200, 429]
    refused = next(r for r in told if r.status_code == 429)
    assert refused.headers["retry-after"]
    assert refused.json()["error"]["code"] == "overloaded"


async def test_a_place_that_was_handed_to_somebody_who_left_is_not_lost():
    gate = Gate(1, 5)

    async def one(hold):
        async with gate.place(None):
            await hold.wait()

    hold = asyncio.Event()
    first = asyncio.ensure_future(one(hold))
    await asyncio.sleep(0)
    second, third = asyncio.ensure_future(one(asyncio.Event())), asyncio.ensure_future(one(hold))
    await asyncio.sleep(0)
    hold.set()
    await first
    second.cancel()
    await asyncio.wait({second, third}, timeout=5)
    assert third.done()
    assert gate.active == 0
    assert gate.waiting == 0


def test_beyond_this_machine_there_are_keys_or_nothing():
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        serve(plans_of({"upstreams": {"up": {"base_url": "http://127.0.0.1:9/v1"}}}), host="0.0.0.0", port=0)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_command_serves_keeps_runs_and_drains(tmp_path):
    """SIGTERM: the request under way is answered, the run is in the store, the process ends well."""
    (tmp_path / "redraft.toml").write_text('[presets.three]\nchecks = ["sentences:3"]\n', encoding="utf-8")
    asked = threading.Event()

    def script(_):
        asked.set()
        return Reply(text=GOOD, delay=1.0)

    with FaultServer(script) as up:
        env = {**os.environ, "REDRAFT_MODEL": "openai/test", "OPENAI_BASE_URL": up.base_url, "OPENAI_API_KEY": "k"}
        env.pop("REDRAFT_STORE", None)
        port = free_port()
        command = [sys.executable, "-m", "redraft", "serve", "--port", str(port)]
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
        try:
            assert "refine/three" in process.stderr.readline()
            url, body = f"http://127.0.0.1:{port}", {"model": "refine/three", "messages": ASKED}
            told = []
            thread = threading.Thread(
                target=lambda: told.append(httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=30))
            )
            thread.start()
            assert asked.wait(20)
            process.send_signal(signal.SIGTERM)
            thread.join(20)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.stderr.close()
            process.wait()
    assert told[0].status_code == 200
    assert told[0].json()["choices"][0]["message"]["content"] == GOOD
    shown = subprocess.run(
        [sys.executable, "-m", "redraft", "runs", "show", told[0].headers["x-redraft-run-id"], "--json"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert GOOD in json.dumps(json.loads(shown.stdout))


def test_the_command_says_what_it_would_serve(tmp_path):
    shadow = '[shadow]\npreset = "three"\nshare = 0.2\nmodels = ["gpt-*"]\n'
    presets = '[presets.three]\nchecks = ["sentences:3"]\n[presets.named]\nstrategy = "self-refine"\n'
    (tmp_path / "redraft.toml").write_text(presets + shadow, encoding="utf-8")
    env = {**os.environ, "REDRAFT_MODEL": "openai/test", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    env["REDRAFT_SERVER_KEYS"] = "one,two"
    command = [sys.executable, "-m", "redraft", "serve", "--check"]
    good = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    (tmp_path / "redraft.toml").write_text('[presets.three]\nchecks = ["sentence:3"]\n', encoding="utf-8")
    bad = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (good.returncode, bad.returncode) == (0, 2)
    assert good.stdout.splitlines() == [
        "refine/three  refine on openai/test (auto: nothing was calibrated for 'openai/test | task -> answer | sentences')",
        "refine/named  self-refine on openai/test",
        "openai  http://127.0.0.1:9/v1: *, without a key",
        "shadow  20% of the answers of gpt-*, refined aside by refine/three",
        "keys  key-1, key-2",
    ]
    assert "[presets.three]" in bad.stderr
