"""pydantic-ai agents as modules: their requests are the run's, with everything that follows from that."""

import asyncio

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelHTTPError, ModelRetry, RunContext, UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage, UsageLimits

from redraft import BestOfN, Budget, Refine, Run, SelfRefine, SqliteStore, checks
from redraft.errors import BadRequestError, BudgetExceeded, InputError, RunClosed, RunFailed
from redraft.integrations.pydantic_ai import MeteredRequests, wrap
from redraft.sync import run_sync
from redraft.testing import FaultServer, Reply, ScriptedLM
from redraft.types import Choice, Completion, Usage

pytestmark = pytest.mark.doors

YES = checks.contains("yes")


class Model:
    """A FunctionModel that says its replies in order (or the last one for ever), and keeps what it was asked."""

    def __init__(self, *replies, usage=(10, 5)):
        self.replies, self.usage, self.asked = list(replies), usage, []

    def model(self):
        def answer(messages, info):
            self.asked.append((messages, info))
            said = self.replies[min(len(self.asked), len(self.replies)) - 1]
            if isinstance(said, Exception):
                raise said
            parts = [TextPart(said)] if isinstance(said, str) else said
            given, written = self.usage
            return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=given, output_tokens=written))

        return FunctionModel(answer, model_name="fm")

    def prompts(self):
        return [messages[-1].parts[-1].content for messages, _ in self.asked]


def test_a_failing_agent_is_lifted_and_told_why():
    said = Model("no", "yes, indeed")
    result = Refine(wrap(Agent(said.model(), instructions="Be brief."), "question -> reply"), N=3, checks=[YES])(
        question="Is it?"
    )
    assert (result.reply, result.stop_reason, len(result.attempts)) == ("yes, indeed", "passed", 2)
    assert (result.usage.calls, result.usage.input_tokens, result.usage.output_tokens) == (2, 20, 10)
    assert result.usage.exact
    assert result.usage.soft == 0
    first, second = (messages[-1].instructions for messages, _ in said.asked)
    assert first.startswith("Be brief.")
    assert 'Mention "yes"' in first
    assert "An earlier answer fell short" in second
    assert [(info.model_settings or {}).get("temperature") for _, info in said.asked] == [None, 0.9]
    assert said.prompts() == ["Is it?", "Is it?"]


class Review(BaseModel):
    text: str
    stars: int


def test_a_typed_output_is_fields_and_its_retries_are_calls():
    said = Model(
        [ToolCallPart("final_result", {"text": "fine", "stars": "many"})],
        [ToolCallPart("final_result", {"text": "fine", "stars": 4})],
    )
    agent = Agent(said.model(), output_type=Review)
    result = Refine(wrap(agent), N=1, checks=[checks.contains("fine", field="text")])(topic="soup")
    assert (result.text, result["stars"]) == ("text: fine\n\nstars: 4", 4)
    assert result.usage.calls == 2


def test_tools_and_output_validators_work_as_ever():
    said = Model([ToolCallPart("price_of", {"dish": "soup"})], "costs 7", "soup costs 7, yes")
    agent = Agent(said.model(), deps_type=dict)

    @agent.tool
    def price_of(ctx: RunContext[dict], dish: str) -> int:
        return ctx.deps[dish]

    @agent.output_validator
    def names_it(text: str) -> str:
        if "soup" not in text:
            raise ModelRetry("name the dish")
        return text

    result = Refine(wrap(agent), N=1, checks=[YES])(question="How much?", deps={"soup": 7})
    assert result.answer == "soup costs 7, yes"
    assert result.usage.calls == 3
    assert said.asked[1][0][-1].parts[-1].content == 7


def test_an_agent_s_own_failure_is_the_attempt_s_error_and_the_next_one_is_told():
    said = Model([ToolCallPart("final_result", {"stars": 1})], [ToolCallPart("final_result", {"stars": 2})], "x")
    said.replies[2] = [ToolCallPart("final_result", {"text": "yes", "stars": 3})]
    agent = Agent(said.model(), output_type=Review, retries=1)
    result = Refine(wrap(agent), N=2, checks=[checks.contains("yes", field="text")])(topic="soup")
    assert isinstance(result.attempts[0].error, UnexpectedModelBehavior)
    assert result["stars"] == 3
    assert "An earlier answer could not be used" in said.asked[2][0][-1].instructions


def test_a_call_limit_ends_it_with_the_best_so_far():
    result = Refine(wrap(Agent(Model("no").model())), N=9, checks=[YES], budget=Budget(calls=3))(question="Is it?")
    assert (result.stop_reason, result.answer, result.usage.calls) == ("budget", "no", 3)
    assert isinstance(result.error, BudgetExceeded)


def test_a_limit_in_the_middle_of_an_agent_s_run_stops_it_there():
    said = Model([ToolCallPart("look", {})])  # it would call the tool for ever
    agent = Agent(said.model())
    agent.tool_plain(lambda: "nothing", name="look")
    with pytest.raises(BudgetExceeded):
        Refine(wrap(agent), N=2, checks=[YES], budget=Budget(calls=4))(question="Is it?")
    assert len(said.asked) == 4


def test_a_token_limit_caps_each_request():
    said = Model("no", usage=(200, 50))
    result = Refine(wrap(Agent(said.model())), N=9, checks=[YES], budget=Budget(tokens=2000))(question="Is it?")
    assert result.stop_reason == "budget"
    assert all(0 < info.model_settings["max_tokens"] < 2000 for _, info in said.asked)
    assert result.usage.tokens <= 2000


def test_a_resumed_run_buys_nothing_again_and_keeps_what_providers_put_in_replies(tmp_path):
    thinking = ThinkingPart("hm", id="rs_1", signature="c2lnbmVk", provider_name="openai")
    said = Model([thinking, ToolCallPart("look", {"at": "it"})], "no", "yes", "again?")
    agent = Agent(said.model())

    @agent.tool_plain
    def look(at: str) -> str:
        return f"saw {at}"

    answers = []
    for _ in range(2):
        store = SqliteStore(tmp_path / "runs.db")
        with Run(run_id="one", store=store) as run:
            answers.append(Refine(wrap(agent), N=3, checks=[YES])(question="Is it?").answer)
        assert run.usage.calls == len(said.asked) == 3
        store.close()
    assert answers == ["yes", "yes"]
    sent_back = said.asked[1][0][1].parts[0]
    assert (sent_back.signature, sent_back.id) == ("c2lnbmVk", "rs_1")


def test_a_half_done_run_buys_the_rest_only(tmp_path):
    said = Model("no", RuntimeError("killed"), "yes")
    store = SqliteStore(tmp_path / "runs.db")
    asked = {"question": "Is it?"}
    with Run(run_id="one", store=store):
        first = Refine(wrap(Agent(said.model())), N=1, checks=[YES])(**asked)
    with Run(run_id="one", store=store):
        said.replies[1] = "yes"
        second = Refine(wrap(Agent(said.model())), N=2, checks=[YES])(**asked)
    assert (first.answer, second.answer, len(said.asked)) == ("no", "yes", 2)
    store.close()


def test_four_at_a_time_under_one_budget():
    said = Model("no")
    best = BestOfN(wrap(Agent(said.model())), N=9, concurrency=4, checks=[YES], budget=Budget(calls=6))
    result = best(question="Is it?")
    assert (result.stop_reason, result.usage.calls, len(said.asked)) == ("budget", 6, 6)


def test_cancelling_the_run_ends_the_agent():
    async def main():
        started = asyncio.Event()

        async def waits(messages, info):
            started.set()
            await asyncio.sleep(60)

        run = Run()
        refined = Refine(wrap(Agent(FunctionModel(waits))), N=1)
        task = asyncio.create_task(run.execute(refined, {"question": "Is it?"}))
        await started.wait()
        run.cancel()
        with pytest.raises(RunClosed):
            await task
        assert run.usage.calls == 1
        assert not run.usage.exact

    asyncio.run(main())


def test_the_ladder_s_models_answer_in_place_of_the_agent_s_with_its_tools():
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    small = ScriptedLM(["no"], name="small")
    big = ScriptedLM([lambda request: _calls(call), "yes, big"], name="big")
    said = Model("never asked")
    agent = Agent(said.model(), instructions="Be brief.")
    agent.tool_plain(lambda: "saw it", name="look")
    result = Refine(wrap(agent), N=2, models=[small, big], checks=[YES])(question="Is it?")
    assert (result.answer, said.asked, result.usage.calls) == ("yes, big", [], 3)
    system, *_, user = small.requests[0].messages
    assert (system["content"], user["content"]) == ("Be brief.", "Is it?")
    assert big.requests[1].messages[-1]["content"] == "saw it"


def _calls(call):
    return Completion(choices=(Choice(tool_calls=(call,), finish_reason="tool_calls"),), usage=Usage(input_tokens=1))


def test_a_critic_without_a_model_of_its_own_asks_the_agent_s():
    said = Model("a dull line", "- dull -> add colour", "a red line", "better: yes", "OK")
    result = SelfRefine(wrap(Agent(said.model()), "task -> line"), rounds=1)(task="Write a line")
    assert len(said.asked) == result.usage.calls > 1


def test_agents_in_the_tools_are_counted_exactly_with_the_capability_and_softly_without():
    def outer_and_inner(**options):
        inner = Agent(Model("deep", usage=(100, 50)).model(), **options)
        outer = Agent(Model([ToolCallPart("ask", {})], "yes").model())

        @outer.tool
        async def ask(ctx: RunContext[None]) -> str:
            return (await inner.run("And?", usage=ctx.usage)).output

        return outer

    soft = Refine(wrap(outer_and_inner()), N=1)(question="Is it?").usage
    exact = Refine(wrap(outer_and_inner(capabilities=[MeteredRequests()])), N=1)(question="Is it?").usage
    assert (soft.calls, soft.tokens, soft.soft) == (3, 180, 1)
    assert (exact.calls, exact.tokens, exact.soft) == (3, 180, 0)


def test_what_agents_in_the_tools_used_is_counted_when_the_outer_one_fails_too():
    inner = Agent(Model("deep", usage=(100, 50)).model())
    outer = Agent(Model([ToolCallPart("ask", {})], ModelHTTPError(400, "fm", "no")).model())

    @outer.tool
    async def ask(ctx: RunContext[None]) -> str:
        return (await inner.run("And?", usage=ctx.usage)).output

    with pytest.raises(BadRequestError) as failed:
        Refine(wrap(outer), N=1)(question="Is it?")
    assert (failed.value.usage.soft, failed.value.usage.tokens) == (1, 165)


def test_an_overridden_model_is_the_one_that_is_metered():
    agent = Agent(Model("never asked").model())
    with agent.override(model=TestModel(custom_output_text="yes")):
        result = Refine(wrap(agent), N=1, checks=[YES])(question="Is it?")
    assert (result.answer, result.usage.calls) == ("yes", 1)


def test_several_inputs_images_and_a_history_make_the_prompt():
    said = Model("first", "yes")
    agent = Agent(said.model())
    history = run_sync(lambda: agent.run("Hello")).all_messages()
    png = BinaryContent(data=b"png", media_type="image/png")
    Refine(wrap(agent), N=1)(question="What is it?", tone="kind", picture=png, message_history=history)
    messages, _ = said.asked[1]
    assert messages[0].parts[-1].content == "Hello"
    assert messages[-1].parts[-1].content == ["Question: What is it?\n\nTone: kind", png]
    wire = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
    Refine(wrap(agent), N=1)(question="What is it?", picture=[wire])
    assert said.asked[2][0][-1].parts[-1].content[-1] == png


def test_options_go_to_the_agent_s_run():
    module = wrap(Agent(Model("no").model()), usage_limits=UsageLimits(request_limit=0))
    with pytest.raises(RunFailed, match="request_limit"):
        Refine(module, N=1)(question="Is it?")


def test_a_streamed_run_inside_a_function_is_metered_with_the_capability():
    agent = Agent(Model("yes indeed").model(), capabilities=[MeteredRequests()])

    async def answer(question):
        async with agent.run_stream(question) as stream:
            return "".join([piece async for piece in stream.stream_text(delta=True)])

    result = Refine(answer, N=1)(question="Is it?")
    assert (result.answer, result.usage.calls, result.usage.tokens) == ("yes indeed", 1, 15)


def test_a_fallback_model_s_failed_tries_stay_inside_one_call():
    bad = Model(ModelHTTPError(500, "bad"))
    good = Model("yes")
    result = Refine(wrap(Agent(FallbackModel(bad.model(), good.model()))), N=1)(question="Is it?")
    assert (result.answer, result.usage.calls) == ("yes", 1)


def test_an_agent_may_stand_where_a_module_does():
    assert Refine(Agent(Model("yes").model()), checks=[YES])(question="Is it?").answer == "yes"


def test_what_is_no_agent_is_said():
    with pytest.raises(InputError, match="give a pydantic-ai agent"):
        wrap(object())


# On the wire


def over(upstream, model="test"):
    provider = OpenAIProvider(base_url=upstream.base_url, api_key="none")
    return Agent(OpenAIChatModel(model, provider=provider)), provider


def test_the_run_retries_in_place_of_the_provider_s_library():
    with FaultServer([Reply.busy("0"), Reply.busy("0"), "yes"]) as upstream:
        agent, provider = over(upstream)
        result = Refine(wrap(agent), N=1)(question="Is it?")
        run_sync(provider.client.close)
        assert upstream.calls == result.usage.calls == 3
    assert result.answer == "yes"


def test_a_refusal_is_redraft_s_error_and_is_not_bought_again(tmp_path):
    with FaultServer(lambda asked: Reply.error(400, "not like this")) as upstream:
        agent, provider = over(upstream)
        for _ in range(2):
            store = SqliteStore(tmp_path / "runs.db")
            with Run(run_id="one", store=store), pytest.raises(BadRequestError):
                Refine(wrap(agent), N=1)(question="Is it?")
            store.close()
        run_sync(provider.client.close)
        assert upstream.calls == 1


def test_a_temperature_that_the_model_refuses_is_dropped_once():
    def answer(asked):
        return Reply.unsupported("temperature") if "temperature" in asked else "no"

    with FaultServer(answer) as upstream:
        agent, provider = over(upstream, "fussy")
        result = Refine(wrap(agent), N=3, checks=[YES])(question="Is it?")
        run_sync(provider.client.close)
        assert [asked.get("temperature") for asked in upstream.requests] == [None, 0.9, None, None]
    assert len(result.attempts) == 3
