"""A fuzzer over the published OpenAPI document: whatever comes in, no 500, and every error in the right API's form."""

import json
import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from serve_house import GOOD, THREE, serving

from redraft.testing import FaultServer

pytestmark = pytest.mark.serve

UPSTREAM_CODES = {"response_format_not_held", "no_answer", "deadline_exceeded"}
"""Above 499 only what the model's texts or the client's own deadline led to."""
FUZZ = int(os.environ.get("REDRAFT_FUZZ", "50"))
MODELS = ["refine/p", "refine/p", "refine/p", "refine/none", ""]

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool", "", "x"])
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "tool_use", "tool_result", "input_text", "thinking", "image", "y"])},
    optional={
        "text": st.text(max_size=9) | scalars,
        "image_url": junk,
        "id": scalars,
        "name": scalars,
        "input": junk,
        "content": junk,
        "tool_use_id": scalars,
        "source": junk,
    },
)
contents = st.text(max_size=20) | st.lists(parts, max_size=3) | junk
messages = st.lists(
    st.fixed_dictionaries({"role": roles, "content": contents}, optional={"tool_calls": junk, "type": scalars}),
    max_size=4,
)
functions = st.fixed_dictionaries({}, optional={"name": scalars, "parameters": junk, "description": scalars})
tools = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["function", "custom", "web"]),
            "function": functions | junk,
            "name": scalars,
            "input_schema": junk,
            "parameters": junk,
        },
    ),
    max_size=2,
)
BY_NAME = {
    "messages": messages,
    "input": messages | st.text(max_size=9) | junk,
    "model": st.sampled_from(MODELS),
    "tools": tools,
}


def of_schema(schema):
    """Values of a schema of the document, as far as it says."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type", [])
    made = {
        "string": st.text(max_size=10),
        "boolean": st.booleans(),
        "integer": st.integers(schema.get("minimum", -3), min(schema.get("maximum", 3), 3)),
        "number": st.floats(0, 2),
        "array": st.lists(of_schema(schema.get("items", {})), max_size=2) if "array" in kinds else st.none(),
        "object": of_object(schema) if "object" in kinds else st.none(),
    }
    names = [kinds] if isinstance(kinds, str) else kinds
    return st.one_of([made[name] for name in names]) if names else junk


def of_object(schema):
    properties = {name: of_schema(part) for name, part in schema.get("properties", {}).items()}
    return st.fixed_dictionaries({}, optional=properties) if properties else junk.filter(lambda v: isinstance(v, dict))


def bodies(document, path):
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    properties = {name: BY_NAME.get(name, of_schema(part)) for name, part in schema["properties"].items()}
    wild = {name: value | junk for name, value in properties.items() if name != "model"}
    required = {name: properties[name] for name in schema["required"]}
    right = st.fixed_dictionaries(required, optional={k: v for k, v in properties.items() if k not in required})
    wrong = st.fixed_dictionaries({"model": properties["model"]}, optional=wild | {"surprise": junk})
    return right | wrong


@pytest.fixture(scope="module")
def served():
    with FaultServer(lambda _: GOOD) as up:
        limits = {"p": {**THREE, "limits": {"seconds": 10, "calls": 4}}}
        with serving(up, limits, server={"ping_seconds": 5}) as house:
            yield house


def form_of(path, body):
    if path == "/v1/messages":
        assert body["type"] == "error"
        assert isinstance(body["error"]["type"], str)
    else:
        assert set(body["error"]) >= {"message", "type", "code", "param"}
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    assert "Traceback" not in body["error"]["message"]
    return body["error"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_no_body_makes_a_500(served, path):
    document = served.get("/openapi.json").json()

    @settings(max_examples=FUZZ, deadline=None, suppress_health_check=list(HealthCheck))
    @given(body=bodies(document, path))
    @example(
        body={
            "model": "refine/p",
            "messages": [{"role": "user", "content": "\ud800"}],
            "input": "\ud800",
            "max_tokens": 9,
        }
    )
    def told(body):
        reply = served.post(path, json.dumps(body).encode())
        if reply.status_code == 200:
            return
        error = form_of(path, reply.json())
        assert reply.status_code < 500 or error.get("code") in UPSTREAM_CODES, (reply.status_code, error, body)

    told()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=st.binary(max_size=200), path=st.sampled_from(["/v1/chat/completions", "/v1/responses", "/v1/messages"]))
def test_no_bytes_make_a_500(served, raw, path):
    reply = served.post(path, raw)
    assert reply.status_code == 400
    form_of(path, reply.json())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    value=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20),
    name=st.sampled_from(["rounds", "attempts", "threshold", "include", "progress", "budget-tokens", "nothing"]),
)
def test_no_header_makes_a_500(served, name, value):
    reply = served.chat("refine/p", headers={f"x-redraft-{name}": value})
    assert reply.status_code in (200, 400, 429), reply.text


def test_unknown_paths_and_methods_are_in_form(served):
    assert served.get("/v1/nothing").json()["error"]["code"] == "not_found"
    assert served.get("/v1/chat/completions").status_code == 405
    assert served.get("/v1/messages").json()["type"] == "error"
    assert served.post("/health", {}).status_code == 405
