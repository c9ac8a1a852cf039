"""Secrets are left out of what is shown, and nothing else is."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redraft.report.page.redact import GONE, Redactor
from redraft.types import Event

SECRETS = [
    "sk-proj-abcdefghijklmnopqrstuvwxyz012345",
    "sk-ant-api03-abcdefghijklmnop_qrst",
    "sk-or-v1-0123456789abcdef0123456789",
    "gsk_abcdefghijklmnop0123456789",
    "xai-abcdefghijklmnop0123456789",
    "hf_abcdefghijklmnopqrstuv01",
    "AIzaSyA-0123456789abcdefghijklmnopqrstu",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0123456789_abcdef",
    "glpat-abcdefghijklmnop0123",
    "xoxb-123456789012-abcdefghij",
    "sk_live_abcdefghij0123",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\ndef\n-----END RSA PRIVATE KEY-----",
]


@pytest.fixture
def redactor():
    return Redactor(
        {"MY_API_KEY": "correct horse battery", "HOME": "/home/me", "SHORT_TOKEN": "abc", "PLAIN": "plain words"}
    )


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_are_known_by_their_form(redactor, secret):
    assert redactor.text(f"use {secret}, please") == f"use {GONE}, please"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef0123456789", f"Authorization: Bearer {GONE}"),
        ("postgres://me:s3cret@db/x", f"postgres://me:{GONE}@db/x"),
        ('api_key="0123456789abc"', f'api_key="{GONE}"'),
        ("password: hunter2hunter2", f"password: {GONE}"),
        ("DB_PASSWORD=hunter2hunter2;x", f"DB_PASSWORD={GONE};x"),
        ("say correct horse battery now", f"say {GONE} now"),
    ],
)
def test_secrets_are_known_by_what_stands_around_them_or_by_value(redactor, text, shown):
    assert redactor.text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "A task-based risk-free desk-top sketch of the password policy",
        "https://example.org/a:b@c?x=1 and mail me@example.org",
        "The token budget is 4096; the secret of the soup: patience",
        "abc plain words /home/me",
        "sk-short",
        "an sk-learn-based-classifier in hf_tokenizer_config_path",
        "Their secret: slow-roasted garlic",
    ],
)
def test_what_is_no_secret_is_shown(redactor, text):
    assert redactor.text(text) == text


@given(st.text(alphabet=string.ascii_letters + " .,\n'\u00e9\u4e2d", max_size=200))
def test_words_are_shown_as_they_are(text):
    assert Redactor({}).text(text) == text


@given(
    st.sampled_from(SECRETS),
    st.text(alphabet=" .,(\n\u00e9\"'", max_size=20),
    st.text(alphabet=" ,)\n\"'", min_size=1, max_size=20),
)
def test_no_secret_is_shown_wherever_it_stands(secret, before, after):
    assert secret not in Redactor({}).text(f"{before}{secret}{after}")


def test_a_value_is_left_out_by_its_name(redactor):
    value = {"headers": {"x-api-key": "plain", "Authorization": "plain"}, "token": "word", "list": [{"password": "p"}]}
    assert redactor.value(value) == {
        "headers": {"x-api-key": GONE, "Authorization": GONE},
        "token": "word",
        "list": [{"password": GONE}],
    }


def test_a_prompt_on_record_is_read_before_it_is_searched(redactor):
    secret = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----"
    content = json.dumps({"messages": [{"role": "user", "content": f"{secret} is mine"}], "model": "m"})
    event = Event(seq=1, kind="intent", time=1.0, scope="s", key="k", data={"content": content, "role": "author"})
    (shown,) = redactor.events([event])
    assert json.loads(shown.data["content"])["messages"][0]["content"] == f"{GONE} is mine"
    assert list(shown.data) == ["content", "role"]
    (same,) = redactor.events([Event(seq=1, kind="intent", time=1.0, data={"content": '{ "a": 1 }'})])
    assert same.data["content"] == '{ "a": 1 }'


@pytest.mark.parametrize(
    "piece", ["password:", "sk-", "-", "_a", "api_key= ", "a://a:", "eyJaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----"]
)
def test_a_text_made_to_be_slow_is_looked_through_all_the_same(redactor, piece):
    assert redactor.text(piece * (60_000 // len(piece)))  # minutes, were a look ahead without bounds
