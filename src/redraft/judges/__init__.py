"""Judges: critics that name issues; a rubric for one draft, and judges that compare two or several."""

from redraft.judges.critic import Critic, as_critique, criticise, persona_text
from redraft.judges.expectation import Expected, expectation
from redraft.judges.family import family
from redraft.judges.listwise import BestOfList
from redraft.judges.majority import Majority
from redraft.judges.pairwise import Pairwise
from redraft.judges.rubric import Rubric
from redraft.judges.spread import Spread

__all__ = [
    "BestOfList",
    "Critic",
    "Expected",
    "Majority",
    "Pairwise",
    "Rubric",
    "Spread",
    "as_critique",
    "criticise",
    "expectation",
    "family",
    "persona_text",
]
