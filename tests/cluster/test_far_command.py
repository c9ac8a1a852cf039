"""`redraft batch --cluster`: a killed driver, a killed worker, Ctrl-C, checks out of a file; and what is refused."""

import json
import os
import signal
import subprocess
import sys

import pytest
from far_parts import Books, Counting, worker_pids

from redraft import SqliteStore
from redraft.errors import UsageError

pytestmark = pytest.mark.ray

CHECKS = """
from redraft.checks import check

@check
def starts_well(text):
    return text.startswith("w")
"""


def batch(folder, url, *more):
    command = [
        "batch",
        "in.jsonl",
        "out.jsonl",
        "--store",
        "runs.db",
        "--batch-id",
        "b",
        "--concurrency",
        "8",
        "--seed",
        "1",
    ]
    asked = [
        "--checks",
        "mine.py",
        "--check",
        "words:5",
        "--attempts",
        "3",
        "--model",
        "openai/test",
        "--base-url",
        url,
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "redraft", *command, *asked, *more],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def folder(tmp_path):
    items = [{"id": i, "task": f"question {i}"} for i in range(12)]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
    (tmp_path / "mine.py").write_text(CHECKS)
    return tmp_path


def books(folder):
    with SqliteStore(folder / "runs.db") as store:
        return Books(store, "b")


def test_a_killed_driver_and_a_killed_worker_lose_nothing_and_pay_nothing_twice(folder):
    on_ray = ("--cluster", "local", "--workers", "2")
    with Counting(delay=0.2) as server:
        with batch(folder, server.url, *on_ray) as process:
            server.until(12)
            process.kill()
            process.communicate(timeout=60)
        books(folder).check(server)
        with batch(folder, server.url, *on_ray) as process:
            server.until(server.total + 10)
            os.kill(worker_pids(process.pid)[0], signal.SIGKILL)
            _, err = process.communicate(timeout=240)
        assert process.returncode == 4, err
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(12))
    assert {row["stop_reason"] for row in rows} == {"rounds"}
    end = books(folder)
    end.check(server)
    assert sum(end.committed.values()) == 36
    assert sum(end.lost.values()) > 0


def test_ctrl_c_lets_what_is_under_way_end(folder):
    with Counting(delay=0.2) as server:
        with batch(folder, server.url, "--cluster", "local", "--workers", "2") as process:
            server.until(6)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Ray's processes, too
            _, err = process.communicate(timeout=240)
        assert process.returncode == 130, err
    assert server.total < 36
    end = books(folder)
    assert sum(end.lost.values()) == 0
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert len(rows) * 3 == sum(end.committed.values()) == server.total


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cluster", "127.0.0.1:1"], "nothing answers at 127.0.0.1:1"),
        (["--cluster", "ray://127.0.0.1:1"], "nothing answers at 127.0.0.1:1"),
        (["--cluster", "somewhere"], "give local, auto, HOST:PORT"),
        (["--cluster", "local", "--provider-batch"], "leave it out, or --cluster"),
        (["--workers", "2"], "no use without --cluster"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(folder, options, said):
    with Counting() as server, batch(folder, server.url, *options) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said in err
    assert server.total == 0
    assert not (folder / "out.jsonl").exists()


def test_a_cluster_that_was_killed_is_not_waited_for(folder, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with Counting() as server, batch(folder, server.url, "--cluster", "auto") as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, server.total) == (2, 0)
    assert "nothing answers at 127.0.0.1:1" in err


def test_what_cannot_travel_is_named():
    import threading

    from redraft import Batch, Predict, Run, context
    from redraft.testing import FunctionLM

    lm = FunctionLM(lambda request: "ok")
    lm.held = [threading.Lock()]
    with pytest.raises(UsageError, match=r"the module\.lm\.held\[0\] \(lock\) cannot be sent"):
        Batch(Predict("q -> a", lm=lm), cluster="local")
    fine = Predict("q -> a", lm=FunctionLM(lambda request: "ok"))
    with context(cache="replies.db"), pytest.raises(UsageError, match="cache"):
        Batch(fine, cluster="local")
    with Run(), pytest.raises(UsageError, match="inside a run"):
        Batch(fine, cluster="local")
