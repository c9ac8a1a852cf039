"""Strategies: methods of making an answer better, each one loop on one screen."""

from redraft.strategies.base import Refining
from redraft.strategies.refine import BestOfN, Refine
from redraft.strategies.reflect import Reflect
from redraft.strategies.roles import Role
from redraft.strategies.self_refine import SelfRefine

__all__ = ["BestOfN", "Refine", "Refining", "Reflect", "Role", "SelfRefine"]
