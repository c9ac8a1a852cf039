"""its-hub: best of N with an outcome reward model, which here is the check itself."""

import warnings

from child import Said, run, share
from its_hub.api.reward_models.orm import AbstractOutcomeRewardModel
from its_hub.core.algorithms.bon import BestOfN
from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
from its_hub.core.orchestrator import LMOrchestrator

warnings.simplefilter("ignore")


class Check(AbstractOutcomeRewardModel):
    def score(self, messages, **_):
        return [share(conversation[-1].content) for conversation in messages]

    async def ascore(self, messages, orchestrator=None, **_):  # noqa: ARG002
        return self.score(messages)


def best_of_n(job):
    lm = OpenAICompatibleLanguageModel(endpoint=job["url"], api_key="none", model_name=job["model"])
    algorithm = BestOfN(Check(), LMOrchestrator(max_concurrency=-1))

    async def answer(prompt):
        result = await algorithm.ainfer(lm, prompt, budget=job["tries"], return_response_only=False)
        return Said(result.the_one["content"], result.usage.total_tokens)

    return answer


if __name__ == "__main__":
    run({"BestOfN": best_of_n})
