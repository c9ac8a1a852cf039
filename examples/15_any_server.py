"""Any OpenAI-compatible server: here llama.cpp's, on loopback, with the embedded model's file. Only the address changes.

    python examples/15_any_server.py

Yours would be `redraft run ... -m NAME --base-url http://127.0.0.1:8080/v1`. What a server can do beyond the API is declared,
never assumed: this one takes grammars, so that a draft is decoded under its checks. Expected output: the rungs, the text, and
a receipt whose price is unknown, since nobody told it.
"""

import os
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before the engine is loaded: its threads must not spin

import xllamacpp

from redraft import Predict, Refine, Result, checks, context
from redraft.lm import catalogue
from redraft.lm.openai import OpenAILM

KEY = "loopback"


def serve() -> xllamacpp.Server:
    """The embedded model behind llama.cpp's HTTP server, on a free port of 127.0.0.1."""
    params = xllamacpp.CommonParams()
    params.model.path = str(catalogue.pull("smollm2-135m"))
    params.n_parallel, params.n_ctx = 2, 8192
    params.cpuparams.n_threads = 1
    params.api_keys = [KEY]
    params.verbosity = -1
    return xllamacpp.Server(params)


def main() -> Result:
    """Serve, and write."""
    server = serve()
    lm = OpenAILM("smollm2-135m", base_url=f"{server.listening_address}/v1", api_key=KEY)
    lm.capabilities = replace(lm.capabilities, grammar=True)  # llama.cpp takes llguidance grammars
    write = Refine(Predict("product -> advertisement"), N=3, checks=[checks.words(12, 25), checks.contains("Crumb")])
    with context(model=lm, seed=1):
        result = write(product="a bakery named Crumb")
    for attempt in result.attempts:
        print(f"{attempt.rung:10} {attempt.text}")
    print(result.receipt())
    return result


if __name__ == "__main__":
    main()
