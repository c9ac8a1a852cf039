"""The first example of dspy.RLM's guide: themes, top complaints and sentiments of a large file of reviews.

    python benchmarks/rlm/examples/reviews.py [--size 100MB]

The models are the benchmark's oracle, so that it runs anywhere and its answers can be held against the exact ones. With
a model of yours, leave `lm` and `sub_lm` to `redraft.configure` or name them.
"""

import setting

from redraft import RLM

data, gold, (main_lm, cheap_lm) = setting.begin("reviews")

rlm = RLM(
    "reviews, query -> summary, top_complaints: list[str], sentiment_breakdown: str",
    lm=main_lm,
    sub_lm=cheap_lm,
    max_iterations=15,
    interpreter=setting.sandbox(),
)
result = rlm(reviews=data, query=setting.query("reviews", gold))

print("Summary:", result.summary)
print("Top complaints:", result.top_complaints)
print("Sentiment:", result.sentiment_breakdown)
for i, step in enumerate(result.trajectory, 1):
    print(f"\n--- Step {i} ---\nCode:\n{step['code'][:300]}\nOutput:\n{step['output'][:200]}")

setting.compare(result, gold)
