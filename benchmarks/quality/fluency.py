"""How likely a larger model finds the texts: `python benchmarks/quality/fluency.py results.jsonl --models DIR --out f.jsonl`.

llama.cpp's server does not score a text it is given, so it is made to write it: greedy, under a grammar that allows this one
text, with the probabilities before the grammar reported. That is one step a token, therefore only each nth prompt is
scored. The number is the mean natural log-likelihood a token, the prompt given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import openai
import suite
from server import Models

SCORER = "qwen-1.5b"
LEAST = -20.0  # a token that is not among the reported ones


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="what run.py wrote")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    parser.add_argument("--scorer", default=SCORER)
    parser.add_argument("--every", type=int, default=4, help="only each nth prompt of the suite")
    parser.add_argument("--seed", type=int, default=0, help="only this seed")
    options = parser.parse_args()
    models = Models(options.models, 1, os.cpu_count() or 1)
    client = openai.OpenAI(base_url=f"{models.address(options.scorer)}/v1", api_key="none", max_retries=0, timeout=900)
    prompts = {task.id: task.prompt for task in suite.tasks()[:: options.every]}
    known = {_key(d): d["loglik"] for d in _read(options.out)}
    same = {(d["prompt"], d["text"]): d["loglik"] for d in _read(options.out)}
    with options.out.open("a", encoding="utf-8") as out:
        for line in _read(options.lines):
            prompt, text = prompts.get(line["prompt"]), line["text"]
            if prompt is None or not text or line["seed"] != options.seed or _key(line) in known:
                continue
            if (line["prompt"], text) not in same:
                same[line["prompt"], text] = likelihood(client, options.scorer, prompt, text)
            kept = {key: line[key] for key in ("model", "arm", "seed", "prompt", "text")}
            out.write(json.dumps({**kept, "loglik": same[line["prompt"], text]}, ensure_ascii=False) + "\n")
            out.flush()
    print("done", file=sys.stderr)
    os._exit(0)


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["model"], line["arm"], line["seed"], line["prompt"]


def _read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def likelihood(client: openai.OpenAI, model: str, prompt: str, text: str) -> float | None:
    """The mean log-likelihood of the text's tokens as an answer to the prompt."""
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt}],
        temperature=0.0,
        max_tokens=4 * len(text) + 8,
        logprobs=True,
        top_logprobs=1,
        extra_body={"grammar": f"%llguidance {{}}\nstart: {json.dumps(text, ensure_ascii=False)}\n"},
    )
    choice = reply.choices[0]
    if (choice.message.content or "") != text or choice.logprobs is None:
        return None
    found = [max(LEAST, token.logprob) for token in choice.logprobs.content or () if token.token]
    return round(sum(found) / len(found), 4) if found else None


if __name__ == "__main__":
    main()
