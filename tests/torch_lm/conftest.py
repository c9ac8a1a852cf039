"""A tiny random model of this process, and the embedded model's weights in transformers."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def tiny():
    """A random Llama over bytes: fast, and never the same token for long."""
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from redraft.proactive.torch_lm import TransformersLM
    from redraft.proactive.torch_session import _BYTES

    torch.set_num_threads(1)
    torch.manual_seed(5)
    marks = {mark: i for i, mark in enumerate(_BYTES)}
    inner = Tokenizer(models.BPE(vocab={**marks, "<end>": 256}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=256,
        bos_token_id=None,
        initializer_range=0.4,
    )
    return TransformersLM(LlamaForCausalLM(config), tokenizer, name="transformers/tiny")


@pytest.fixture(scope="session")
def smollm():
    """SmolLM2-135M out of the embedded engine's own file."""
    torch = pytest.importorskip("torch")
    from redraft.lm import catalogue
    from redraft.proactive.torch_lm import TransformersLM

    torch.set_num_threads(1)
    model = catalogue.lookup(catalogue.DEFAULT)
    if not model.pulled:
        catalogue.fetch(model, lambda done, total: None)
    return TransformersLM.load(model.path.parent, gguf=model.path.name)
