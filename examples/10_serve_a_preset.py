"""Refined answers for any client: `redraft serve` makes a preset a model, and an application changes its base URL alone.

    pip install 'redraft[server,local]'
    python examples/10_serve_a_preset.py

The embedded model writes (98 MB, fetched once), so that all of it runs here. Expected output: what is served, the answer that
the official client gets, which has three sentences, and what the reply's headers and usage say of it.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from openai import OpenAI

PRESETS = """
model = "local/smollm2-135m"

[presets.review]
checks = ["sentences:3", "contains:La Maison"]
limits = { calls = 4 }
max_tokens = 120
"""
SERVE = [sys.executable, "-m", "redraft", "serve", "--port", "0"]


def ask(base_url: str) -> str:
    """What an application does: nothing in it knows of redraft but the name of the model."""
    client = OpenAI(base_url=base_url, api_key="none")
    asked = [{"role": "user", "content": "Review La Maison, a French restaurant."}]
    reply = client.chat.completions.with_raw_response.create(model="refine/review", messages=asked, seed=1)
    for name in ("drafts", "score-initial", "score", "stop-reason", "calls"):
        print(f"    {name}: {reply.headers[f'x-redraft-{name}']}")
    completion = reply.parse()
    print(f"    usage: {completion.usage.total_tokens} tokens, all drafts together")
    return completion.choices[0].message.content


def main() -> str:
    """Serve, ask, stop."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "redraft.toml").write_text(PRESETS)
        alone = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "REDRAFT_SERVER"))}
        server = subprocess.Popen(SERVE, cwd=folder, env=alone, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own
        said = server.stderr.readline().strip()  # redraft: serving http://127.0.0.1:PORT/v1 (...): refine/review
        print(said, flush=True)
        text = ask(said.split()[2])
        server.send_signal(signal.SIGTERM)
        print(f"{text}\nthe server ended with {server.wait(timeout=60)}")
    return text


if __name__ == "__main__":
    main()
