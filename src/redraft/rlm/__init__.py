"""RLM: answer questions about inputs of any size by writing code over them."""

from redraft.rlm.rlm import RLM

__all__ = ["RLM"]
