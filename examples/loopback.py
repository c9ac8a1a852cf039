"""The demo's task through an OpenAI-compatible server: llama.cpp's, on loopback, with the embedded model's file.

What you learn: only the address changes, and what the server can do beyond the API is declared, never assumed.
Expected output: as in demo.py, with the price unknown, since nobody told it.
"""

from __future__ import annotations

import os
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before the engine is loaded: its threads must not spin

import demo
import xllamacpp

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


if __name__ == "__main__":
    server = serve()
    lm = OpenAILM("smollm2-135m", base_url=f"{server.listening_address}/v1", api_key=KEY)
    lm.capabilities = replace(lm.capabilities, grammar=True)  # llama.cpp takes llguidance grammars
    demo.main(lm)
