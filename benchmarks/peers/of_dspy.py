"""DSPy, as its documentation has it; its cache is off, since every item is new."""

import dspy
from child import Said, run, share

dspy.disable_logging()


def reward(_, pred):
    """The share of three sentences that the answer has."""
    return share(pred.answer)


def module(kind, job):
    more = {"timeout": job["timeout"]} if "timeout" in job else {}
    lm = dspy.LM(f"openai/{job['model']}", api_base=job["url"], api_key="none", cache=False, **more)
    dspy.configure(lm=lm, track_usage=True)
    return getattr(dspy, kind)(dspy.Predict("task -> answer"), N=job["tries"], reward_fn=reward, threshold=1.0)


def said(pred):
    if pred is None:
        return Said()
    usage = pred.get_lm_usage() or {}
    return Said(pred.answer, sum(one.get("total_tokens") or 0 for one in usage.values()) if usage else None)


def of(kind):
    def make(job):
        strategy = module(kind, job)

        def answer(prompt):
            return said(strategy(task=prompt))

        def many(prompts, threads):
            examples = [dspy.Example(task=prompt).with_inputs("task") for prompt in prompts]
            found = strategy.batch(examples, num_threads=threads, disable_progress_bar=True, max_errors=len(prompts))
            return [said(pred) for pred in found]

        answer.many = many
        return answer

    return make


if __name__ == "__main__":
    run({"BestOfN": of("BestOfN"), "Refine": of("Refine")})
