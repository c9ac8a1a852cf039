"""No library: a loop around the official client, as many people write it. Runs in redraft's environment."""

import openai
from child import Said, run, share


def best_of_n(job):
    client = openai.OpenAI(base_url=job["url"], api_key="none", timeout=job.get("timeout", 60))

    def answer(prompt):
        best, spent = "", 0
        for _ in range(job["tries"]):
            reply = client.chat.completions.create(model=job["model"], messages=[{"role": "user", "content": prompt}])
            text = reply.choices[0].message.content or ""
            spent += reply.usage.total_tokens
            best = max(best, text, key=share)
            if share(best) == 1:
                break
        return Said(best, spent)

    return answer


def at_once(job):
    client = openai.AsyncOpenAI(base_url=job["url"], api_key="none", timeout=60)

    async def answer(prompt):
        best, spent = "", 0
        for _ in range(job["tries"]):
            messages = [{"role": "user", "content": prompt}]
            reply = await client.chat.completions.create(model=job["model"], messages=messages)
            text = reply.choices[0].message.content or ""
            spent += reply.usage.total_tokens
            best = max(best, text, key=share)
            if share(best) == 1:
                break
        return Said(best, spent)

    return answer


def with_feedback(job):
    """Shows the bad draft and says what is wrong."""
    client = openai.OpenAI(base_url=job["url"], api_key="none", timeout=job.get("timeout", 60))

    def answer(prompt):
        best, spent, messages = "", 0, [{"role": "user", "content": prompt}]
        for _ in range(job["tries"]):
            reply = client.chat.completions.create(model=job["model"], messages=messages)
            text = reply.choices[0].message.content or ""
            spent += reply.usage.total_tokens
            best = max(best, text, key=share)
            if share(best) == 1:
                break
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Not three sentences."}]
        return Said(best, spent)

    return answer


if __name__ == "__main__":
    run({"best of N": best_of_n, "feedback": with_feedback, "at once": at_once})
