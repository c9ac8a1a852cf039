"""`redraft batch --provider-batch` against a real loopback server with the Files and Batches endpoints."""

import json
import signal

import pytest

from redraft.cli import provider
from redraft.lm.batch_rounds import Rounds
from redraft.testing import ScriptedLM
from redraft.testing.batch_endpoints import BatchServer, JobPlan

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(provider, "ROUNDS", Rounds(quiet=0.02, longest=30.0, poll=(0.001, 0.01)))


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"id": i, "task": f"say word{i}"}) + "\n" for i in range(30)))
    return str(path)


def second_time_right():
    asked = {}

    def reply(body):
        word = next(
            w for w in json.dumps(body["messages"]).replace('"', " ").replace("\\n", " ").split() if "word" in w
        )
        asked[word] = asked.get(word, 0) + 1
        return word if asked[word] > 1 else "several wrong words"

    return reply


def test_each_round_of_all_rows_is_one_job(redraft, source, tmp_path):
    with BatchServer(second_time_right()) as server:
        said = redraft("batch", source, "out.jsonl", "--provider-batch", "-m", "m", "--base-url", server.base_url,
                       "--check", "words:1", "--strategy", "refine")  # fmt: skip
        assert said.exit_code == 0, said.stderr
        assert "is asked in jobs of its Batch API" in said.stderr
        assert {row["answer"] for row in rows(tmp_path / "out.jsonl")} == {f"word{i}" for i in range(30)}
        assert (len(server.created), len(server.online)) == (2, 0)


def test_a_round_waits_for_rows_whose_checks_take_long(redraft, source, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import random, time\nfrom redraft import check\n\n@check\ndef brief(text):\n"
        "    time.sleep(random.choice([0, 0.2]))\n    return len(text) < 10\n"
    )
    with BatchServer(second_time_right()) as server:
        said = redraft("batch", source, "out.jsonl", "--provider-batch", "-m", "m", "--base-url", server.base_url,
                       "--checks", "slow.py", "--strategy", "refine")  # fmt: skip
        assert said.exit_code == 0, said.stderr
        assert len(server.created) == 2


def test_what_fails_in_a_job_goes_online_where_asked(redraft, source, tmp_path):
    plan = JobPlan(ends="expired", answered=20)
    with BatchServer(jobs=[plan]) as server:
        said = redraft("batch", source, "out.jsonl", "--provider-batch", "--retry-online", "-m", "m", "--base-url",
                       server.base_url, "--strategy", "predict")  # fmt: skip
        assert said.exit_code == 0, said.stderr
        assert (len(server.created), len(server.online)) == (1, 10)


def test_what_cannot_be_is_said_before_anything_is_spent(redraft, source, tmp_path):
    said = redraft("batch", source, "out.jsonl", "--provider-batch", lm=ScriptedLM(["x"]))
    assert (said.exit_code, "OpenAI-compatible" in said.stderr) == (2, True)
    said = redraft("batch", source, "out.jsonl", "--retry-online", lm=ScriptedLM(["x"]))
    assert (said.exit_code, "without --provider-batch" in said.stderr) == (2, True)
    with BatchServer(lists=False) as server:
        said = redraft("batch", source, "out.jsonl", "--provider-batch", "-m", "m", "--base-url", server.base_url)
        assert (said.exit_code, "Batch API" in said.stderr) == (1, True)
        assert (server.created, server.online) == ([], [])
    assert not (tmp_path / "out.jsonl").exists()


def test_killed_or_interrupted_twice_the_same_command_takes_its_job_up_again(start, source, tmp_path):
    with BatchServer(jobs=[JobPlan(looks=10**8)]) as server:
        command = ("batch", source, "out.jsonl", "--provider-batch", "-m", "m", "--base-url", server.base_url,
                   "--strategy", "predict")  # fmt: skip

        def looked_at(before):
            with server.arrived:
                assert server.arrived.wait_for(lambda: server.asked[before:].count("GET /batches/batch_2") > 0, 60)

        killed = start(*command)
        looked_at(0)
        killed.kill()
        killed.wait()
        before = len(server.asked)
        interrupted = start(*command)
        looked_at(before)
        interrupted.send_signal(signal.SIGINT)
        while "no further rows" not in interrupted.stderr.readline():
            pass
        interrupted.send_signal(signal.SIGINT)
        interrupted.wait(timeout=60)
        server.end()
        last = start(*command)
        _, said = last.communicate(timeout=60)
        assert last.returncode == 0, said
        assert len(rows(tmp_path / "out.jsonl")) == 30
        assert (len(server.created), len(server.sent), len(server.online)) == (1, 30, 0)
