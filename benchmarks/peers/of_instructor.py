"""instructor: a pydantic model whose validator holds the check; it asks again with the error, and raises after the last."""

import instructor
import openai
from child import Said, run, sentences
from pydantic import BaseModel, field_validator


class Answer(BaseModel):
    answer: str

    @field_validator("answer")
    @classmethod
    def three(cls, text):
        if sentences(text) != 3:
            raise ValueError(f"{sentences(text)} sentences, want 3")
        return text


def options(job):
    limit = {"token_budget": job["tokens"]} if "tokens" in job else {}
    return {"model": job["model"], "response_model": Answer, "max_retries": job["tries"] - 1, **limit}


def said(answer):
    usage = getattr(answer, "_total_usage", None)
    return Said(answer.answer, usage.total_tokens if usage else None)


def retries(job):
    client = openai.OpenAI(base_url=job["url"], api_key="none", timeout=job.get("timeout", 60))
    client = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)

    def answer(prompt):
        return said(client.chat.completions.create(messages=[{"role": "user", "content": prompt}], **options(job)))

    return answer


def at_once(job):
    client = openai.AsyncOpenAI(base_url=job["url"], api_key="none", timeout=60)
    client = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)

    async def answer(prompt):
        messages = [{"role": "user", "content": prompt}]
        return said(await client.chat.completions.create(messages=messages, **options(job)))

    return answer


if __name__ == "__main__":
    run({"retries": retries, "at once": at_once})
