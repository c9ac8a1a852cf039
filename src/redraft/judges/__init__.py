"""Judges: critics that name issues, and a judge that compares two drafts."""

from redraft.judges.critic import Critic, as_critique, criticise, persona_text
from redraft.judges.pairwise import Pairwise

__all__ = ["Critic", "Pairwise", "as_critique", "criticise", "persona_text"]
