"""LangChain runnables as modules: counted softly call by call, advised where they can hear it, resumed."""

import asyncio
import warnings
from typing import Any

import pytest

pytest.importorskip("langchain_core")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_core.caches import InMemoryCache
    from langchain_core.globals import set_llm_cache
    from langchain_core.language_models import BaseChatModel, FakeListChatModel, FakeListLLM
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from pydantic import BaseModel

from redraft import BestOfN, Budget, Refine, Run, SqliteStore, checks
from redraft.config import context
from redraft.errors import BadRequestError, BudgetExceeded, ConfigError, InputError, RunFailed
from redraft.integrations.langchain import RedraftChat, wrap
from redraft.testing import ScriptedLM
from redraft.testing.words import EVERYTHING
from redraft.types import Choice, Completion, Usage

pytestmark = pytest.mark.doors

YES = checks.contains("yes")


class Said(BaseChatModel):
    """Says its replies in order, the last one for ever; keeps what it was asked, and reports its usage."""

    replies: Any = ()
    asked: Any = ()
    settings: Any = ()
    temperature: float | None = None
    counted: bool = True

    @property
    def _llm_type(self):
        return "said"

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "openai", "ls_model_name": "gpt-4.1-mini", "ls_model_type": "chat"}

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.asked.append(messages)
        self.settings.append(kwargs)
        said = self.replies[min(len(self.asked), len(self.replies)) - 1]
        if isinstance(said, Exception):
            raise said
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15} if self.counted else None
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said, usage_metadata=usage))])


def says(*replies, **options):
    return Said(replies=list(replies), asked=[], settings=[], **options)


PROMPT = ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "{question}")])


def test_a_failing_chain_is_lifted_told_why_and_counted():
    model = says("no", "yes, indeed", temperature=0.0)
    chain = PROMPT | model | StrOutputParser()
    result = Refine(wrap(chain, "question -> reply"), N=3, checks=[YES])(question="Is it?")
    assert (result.reply, result.stop_reason) == ("yes, indeed", "passed")
    assert (result.usage.calls, result.usage.soft, result.usage.tokens) == (2, 2, 30)
    assert 0 < result.cost < 0.001
    first, second = (messages[-1].content for messages in model.asked)
    assert first == 'Is it?\n\nRequirements:\n- Mention "yes".'
    assert "An earlier answer fell short" in second
    assert [settings.get("temperature") for settings in model.settings] == [None, 0.9]
    assert model.asked[0][0].content == "Be brief."


def test_a_prompt_s_own_variable_takes_the_hint():
    model = says("no", "yes")
    prompt = ChatPromptTemplate.from_messages([("system", "{hint}"), ("human", "{question}")])
    Refine(wrap(prompt | model), checks=[YES])(question="Is it?")
    assert [messages[-1].content for messages in model.asked] == ["Is it?", "Is it?"]
    assert "fell short" in model.asked[1][0].content


class Review(BaseModel):
    text: str
    stars: int


@pytest.mark.parametrize(
    ("runnable", "given", "fields"),
    [
        (says("hi"), {"question": "Hello"}, {"answer": "hi"}),
        (says("hi"), {"messages": [HumanMessage("Hello")]}, {"answer": "hi"}),
        (FakeListLLM(responses=["hi"]), {"question": "Hello"}, {"answer": "hi"}),
        (says('{"a": 1}') | JsonOutputParser(), {"question": "Hello"}, {"a": 1}),
        (RunnableLambda(lambda text: Review(text=text, stars=3)), {"text": "x"}, {"text": "x", "stars": 3}),
        (RunnableLambda(lambda given: given["a"] + given["b"]), {"a": 1, "b": 2}, {"answer": 3}),
        ({"question": RunnablePassthrough()} | PROMPT | says("hi"), {"question": "Hello"}, {"answer": "hi"}),
        (RunnableLambda(lambda text: {"messages": [AIMessage(text)], "n": 1}), {"text": "x"}, {"answer": "x", "n": 1}),
    ],
)
def test_inputs_and_outputs_are_what_one_expects(runnable, given, fields):
    assert Refine(wrap(runnable), N=1)(**given).to_dict() == fields


def test_a_call_limit_ends_it_with_the_best_so_far():
    result = Refine(wrap(PROMPT | says("no")), N=9, checks=[YES], budget=Budget(calls=3))(question="Is it?")
    assert (result.stop_reason, result.answer, result.usage.calls) == ("budget", "no", 3)
    assert isinstance(result.error, BudgetExceeded)


def test_a_limit_is_held_in_the_middle_of_a_chain():
    model = says("no")

    async def for_ever(question):
        while True:
            await model.ainvoke(question)

    with pytest.raises(BudgetExceeded):
        Refine(wrap(RunnableLambda(for_ever)), N=2, budget=Budget(calls=4))(question="Is it?")
    assert len(model.asked) == 4


def test_a_resumed_run_invokes_nothing_again(tmp_path):
    model = says("no", "yes")
    for _ in range(2):
        store = SqliteStore(tmp_path / "runs.db")
        with Run(run_id="one", store=store) as run:
            assert Refine(wrap(PROMPT | model), N=3, checks=[YES])(question="Is it?").answer == "yes"
        assert run.usage.calls == len(model.asked) == 2
        store.close()


def test_a_chain_s_error_is_the_attempt_s_and_its_call_is_counted():
    model = says(ValueError("no such dish"), "yes")
    result = Refine(wrap(PROMPT | model), N=2, checks=[YES])(question="Is it?")
    assert str(result.attempts[0].error) == "no such dish"
    assert (result.answer, result.usage.calls) == ("yes", 2)


def test_four_at_a_time_under_one_budget():
    model = says("no")
    result = BestOfN(wrap(PROMPT | model), N=9, concurrency=4, checks=[YES], budget=Budget(calls=6))(question="Is it?")
    assert result.stop_reason == "budget"
    assert 6 <= result.usage.calls == len(model.asked) <= 9  # soft: by at most the calls in flight


def test_cancelling_the_run_ends_the_chain_and_charges_the_call_in_flight():
    async def main():
        started = asyncio.Event()

        class Waits(Said):
            async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
                started.set()
                await asyncio.sleep(60)

        run = Run()
        task = asyncio.create_task(run.execute(Refine(wrap(PROMPT | Waits()), N=1), {"question": "Is it?"}))
        await started.wait()
        run.cancel()
        with pytest.raises(RunFailed, match="cancelled") as raised:
            await task
        assert raised.value.usage.calls == 1
        assert (run.usage.calls, run.usage.unbounded) == (1, 1)

    asyncio.run(main())


def test_a_retry_does_not_read_the_cache():
    model = says("no", "yes")
    set_llm_cache(InMemoryCache())
    try:
        result = Refine(wrap(model), N=2, checks=[checks.contains("yes", tell=False)], revise="fresh")(q="Is it?")
    finally:
        set_llm_cache(None)
    assert (result.answer, len(model.asked)) == ("yes", 2)


def test_the_ladder_s_models_take_the_model_s_place_with_its_tools():
    def look(at: str) -> str:
        """Look at something."""
        return at

    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
    reply = Completion(choices=(Choice(tool_calls=(call,)),), usage=Usage(input_tokens=3, output_tokens=2))
    lm = ScriptedLM([reply], name="big")
    result = Refine(wrap(PROMPT | RedraftChat(lm=ScriptedLM([])).bind_tools([look])), N=1, models=[lm])(
        question="Is it?"
    )
    assert [(c["name"], c["args"]) for c in result.tool_calls] == [("look", {"at": "it"})]
    assert lm.requests[0].tools[0]["function"]["name"] == "look"
    assert (result.usage.calls, result.usage.tokens, result.usage.soft) == (1, 5, 0)


def test_a_redraft_model_is_a_chat_model_outside_of_runs_too():
    chat = RedraftChat(lm=ScriptedLM(["one", "two"]))
    assert chat.invoke("Hello").text == "one"
    assert asyncio.run(chat.ainvoke([HumanMessage("Hello")])).usage_metadata["total_tokens"] > 0


def test_a_chat_model_is_asked_what_is_bound_to_it_and_tells_all_of_the_reply():
    calls = [{"id": "1", "type": "function", "function": {"name": "at", "arguments": given}} for given in ("{}", "{")]
    usage = Usage(input_tokens=9, output_tokens=4, cached_tokens=8, reasoning_tokens=2)
    lm = ScriptedLM([Completion(choices=(Choice(reasoning="hm", tool_calls=tuple(calls)),), usage=usage)])
    lm.capabilities = EVERYTHING
    chat = RedraftChat(lm=lm).bind_tools([{"name": "at", "parameters": {}}], tool_choice="any", seed=3)
    said = chat.bind(response_format={"type": "json_object"}).invoke("Hello", stop=["."])
    (asked,) = lm.requests
    assert (asked.tool_choice, asked.seed, asked.schema, asked.stop) == ("required", 3, {"type": "object"}, (".",))
    assert (said.tool_calls[0]["args"], said.invalid_tool_calls[0]["args"]) == ({}, "{")
    assert said.additional_kwargs["reasoning_content"] == "hm"
    assert said.usage_metadata["input_token_details"] == {"cache_read": 8}
    assert said.usage_metadata["output_token_details"] == {"reasoning": 2}
    with pytest.raises(BadRequestError, match="'temperature'"):
        chat.invoke("Hello", temperature="hot")


def test_a_chat_model_takes_a_name_and_is_the_configured_model_without_one():
    lm = ScriptedLM(["one"])
    with context(model=lm):
        assert RedraftChat().invoke("Hello").text == "one"
    assert RedraftChat(lm="local/smollm2-135m").lm.name == "local/smollm2-135m"
    with pytest.raises(ConfigError, match="unknown model"):
        RedraftChat(lm="nobody/knows")


def test_what_takes_no_advice_is_said(capsys):
    Refine(wrap(RunnableLambda(lambda text: "yes").with_config(run_name="deaf")), checks=[YES])(text="Is it?")
    assert "takes no advice" in capsys.readouterr().err


def test_a_model_that_reports_no_usage_is_a_call_of_unknown_size():
    usage = Refine(wrap(says("yes", counted=False)), N=1)(question="Is it?").usage
    assert (usage.calls, usage.unbounded, usage.soft) == (1, 1, 1)


def test_a_token_limit_that_cannot_hold_such_a_model_says_so(capsys):
    chain = PROMPT | FakeListChatModel(responses=["no, not at all", "yes"]) | StrOutputParser()
    result = Refine(chain, checks=[YES], budget=Budget(tokens=5))(question="Is it?")
    assert (result.answer, result.usage.unpriced) == ("yes", 2)
    assert "2 calls (2 metered afterwards) | at least 0 tokens | price unknown" in result.receipt()
    assert "does not report the tokens of all its calls" in capsys.readouterr().err


def test_a_runnable_without_a_model_costs_nothing():
    assert Refine(wrap(RunnableLambda(str.upper)), N=1)(text="a").usage.calls == 0


def test_a_runnable_may_stand_where_a_module_does():
    assert Refine(PROMPT | says("yes"), checks=[YES])(question="Is it?").answer == "yes"


def test_what_is_no_runnable_is_said():
    with pytest.raises(InputError, match="give a LangChain runnable"):
        wrap(object())
