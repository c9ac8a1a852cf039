"""PASR by tags (arXiv 2508.12903): the model itself is trained to write `<refine>` spans (docs/pasr.md). Loads no torch and no
TRL; `redraft.proactive.pasr.recipe.train_pasr` does.
"""

from redraft.proactive.pasr.baseline import BaselineProvider, ColumnBaseline, SampledBaseline
from redraft.proactive.pasr.rewards import PasrRewards, format_reward, refinement_reward
from redraft.proactive.pasr.tags import Tagged, TagStream, parse, strip_refine

__all__ = [
    "BaselineProvider",
    "ColumnBaseline",
    "PasrRewards",
    "SampledBaseline",
    "TagStream",
    "Tagged",
    "format_reward",
    "parse",
    "refinement_reward",
    "strip_refine",
]
