"""The loopback model in its own process, and a peer's script run against it in the peer's environment."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from peers import envs

HERE = Path(__file__).resolve().parent


@contextlib.contextmanager
def served():
    """The address of the model that all peers ask."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
            for proxy in PROXIES.values():
                os.killpg(proxy[2].pid, signal.SIGKILL)
            PROXIES.clear()


PROXIES = {}


def optillm(url):
    """The port and process of a proxy before the model, which is started once."""
    if url not in PROXIES:
        command = [
            envs.python("optillm"),
            str(HERE / "of_optillm.py"),
            json.dumps({"arm": "waits", "url": url, "tries": 3}),
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen(command, env=envs.ENV, **pipes)
        port, pid = process.stdout.readline().split()
        PROXIES[url] = int(port), int(pid), process
    return PROXIES[url][:2]


def child(peer, arm, seconds=600, *, whole=False, **job):
    """What a peer's script printed of one job; None if it was not done within so many seconds."""
    if peer == "optillm" and not whole:
        job["proxy"] = optillm(job["url"])
    script = HERE / f"of_{peer.replace('-', '_')}.py"
    program = envs.python("redraft" if peer == "floor" else peer)
    command = [program, "-W", "ignore", str(script), json.dumps({"arm": arm, **job})]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=envs.ENV, start_new_session=True, **quiet)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started ends with it
    if process.returncode or not out.strip():
        raise SystemExit(f"{peer}, {arm}: {err.strip()[-800:]}")
    return json.loads(out.splitlines()[-1])


def options(parser):
    parser.add_argument(
        "--only", type=lambda text: text.split(","), help="these peers, redraft and the floor: dspy,mellea"
    )


def chosen(arms, only):
    return [arm for arm in arms if not only or arm[1] in ("floor", "redraft", *only)]
