"""Tests of secrets: they are found by their value, however it is encoded, and nothing else is."""

import json
from typing import get_args
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.registry import Registry
from gymcli.errors import Phase
from gymcli.secrets import (
    NOTHING_SECRET,
    REDACTED,
    Scrubber,
    credentials,
    environment_secrets,
    is_secret_name,
    passwords,
    scrubber_of,
)
from gymcli.store.manifest import EnvironmentRecord, Manifest
from gymcli.types import (
    ErrorRecord,
    Failure,
    FinishReason,
    FunctionCall,
    Message,
    Role,
    RoleUse,
    Rollout,
    StopReason,
    Timing,
    ToolCall,
    Usage,
    Verifier,
)

KEY = "sk-never-to-be-seen-1"
ODD = "p\"w\\d'é\n&/ +%"

secret_texts = st.text(st.characters(codec="utf-8"), min_size=8, max_size=30)
STRUCTS = (
    *(Rollout, Failure, Message, ToolCall, FunctionCall, Usage, Timing, RoleUse, Verifier),
    *(ErrorRecord, Manifest, EnvironmentRecord),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "DB_PASS",
        "SESSION_COOKIE",
        "NPM_AUTH",
        "GH_PAT",
        "MY_CREDENTIALS",
        "APIKEY",
        "X-Api-Key",
        "authorization",
        "accessToken",
    ],
)
def test_is_secret_name(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "GIT_AUTHOR_NAME",
        "KEYBOARD",
        "TOKENIZERS_PARALLELISM",
        "COMPASS",
        "COOKIE_DOMAIN",
        "AUTH_MODE",
        "SSH_KEY_TYPE",
        "APP_SECRET_NAME",
        "AUTHORIZED_KEYS_FILE",
        "MONKEY",
        "TURKEYS",
        "",
    ],
)
def test_is_no_secret_name(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "value",
    [
        "development",
        "true",
        "1234567890",
        "3.14159265",
        "2024-02-01",
        "2024-02-15-preview",
        "1e100000",
        "/home/me/key.pem",
        "/srv/models",
        "~/.ssh/id_rsa",
        "./keys/a.pem",
        "C:\\keys\\a.pem",
        "https://example.org/login",
        "application/json; q=1",
        "/tmp/ssh-XXXX/agent.1",
        "client-cert",
        "not-needed",
        "schema_version",
        "db.example.com",
        "localhost:8080",
    ],
)
def test_environment_secrets_leave_plain_values_out(value):
    assert environment_secrets({"MY_KEY": value}) == []


@pytest.mark.parametrize(
    "value",
    [
        "hf_abcdefgh",
        "wJalrXUtnFEMI/K7MDENG+bPx",
        "correct horse 9",
        "/9j/4AAQSkZJRg==",
        "a1b2c3d4",
        "correct-horse-battery-staple",
        "6f1c2b1e-0d6c-4b58-9a59-0c5e2f3a7b1d",
        "abcdefabc-def0",
        "ghp_abcdefghijkl",
        "sk-abcdefgh",
        "AKIAABCDEFGHIJKLMNOP",
        "AbCdEfGhIjKl",
    ],
)
def test_environment_secrets(value):
    assert value in environment_secrets({"MY_KEY": value})
    assert environment_secrets({"MY_NAME": value}) == []


def test_environment_secrets_find_the_password_of_an_address():
    found = environment_secrets({"HTTPS_PROXY": "http://user:p%40ssword1@host:1"})
    assert set(found) == {"p%40ssword1", "p@ssword1", "user:p%40ssword1@"}
    assert environment_secrets({"A": "http://[:1@", "B": "x://y@z"}) == []


def test_passwords_that_are_plain_are_secret_after_their_user():
    address = "postgres://postgres:postgres@localhost/app"
    assert passwords(address) == ["postgres", "postgres:postgres@"]
    assert environment_secrets({"DATABASE_URL": address}) == ["postgres:postgres@"]
    told = f"no postgres at {address}"
    assert scrubber_of(passwords(address), {}).text(told) == (
        f"no postgres at postgres://{REDACTED}localhost/app"
    )


def test_environment_secrets_find_the_lines_of_a_private_key():
    lines = ["-----BEGIN KEY-----", "MIIEvQIBADANBgkqhkiG", "end", "-----END KEY-----"]
    found = environment_secrets({"SSH_KEY": "\n".join(lines)})
    assert lines[1] in found
    assert not {lines[0], lines[2], lines[3]} & set(found)


def test_credentials_are_all_but_plain_values_under_plain_names():
    named = {
        "Authorization": f"Bearer {KEY}",
        "api-version": "2024-02-15-preview",
        "X-Team": "research",
    }
    assert credentials(named.items()) == [f"Bearer {KEY}", KEY]
    assert credentials([("X-Token", "research")]) == ["research"]
    assert credentials([("X-Other", KEY)]) == [KEY]
    assert credentials([("X-Other", f"a key {KEY}")]) == [KEY]
    assert credentials([("X-Title", "Research assistant")]) == []
    assert credentials([("Authorization", f"Digest of {KEY}")]) == [f"Digest of {KEY}"]


def test_scrubber_of_leaves_short_values_out():
    scrubber = scrubber_of(["1234567", "12345678"], {"HF_TOKEN": "abc-123"})
    assert scrubber.text("1234567 abc-123 12345678") == f"1234567 abc-123 {REDACTED}"


def test_scrubber_of_leaves_the_words_of_records_out(subtests):
    """Otherwise a run could not be read, because `[redacted]` would replace keys and values."""
    names = (
        {field.encode_name for struct in STRUCTS for field in msgspec.structs.fields(struct)}
        | {name for kind in (Role, StopReason, FinishReason, Phase) for name in get_args(kind)}
        | set(Registry.names())
    )
    for name in sorted(names):
        variables = {"A_TOKEN": name, "B_URL": f"x://u:{name}@h", "C_URL": f"x://{name}:{name}@h"}
        in_use = [name, *credentials([("X-Api-Key", f"Bearer {name}")])]
        scrubber = scrubber_of(in_use, {}).also(environment_secrets(variables))
        line = msgspec.json.encode({name: name, "a": [f"one {name}, {name}s"]})
        with subtests.test(name):
            assert scrubber.line(line) is line


def test_scrubber_of_takes_out_what_is_in_use_and_no_other_variable():
    environ = {
        "OPENAI_API_KEY": "k1-openai-1234",
        "HF_TOKEN": "hf_1234567890",
        "https_proxy": "http://user:k2-proxy-1234@host:1",
        "EOS_TOKEN": "<|im_end|>",
        "DATABASE_URL": "x://u:k3-database@h",
    }
    told = "k1-openai-1234 hf_1234567890 k2-proxy-1234 <|im_end|> k3-database k0-given-1234"
    found = scrubber_of(["k0-given-1234"], environ).text(told)
    assert found == f"{REDACTED} {REDACTED} {REDACTED} <|im_end|> k3-database {REDACTED}"


def test_scrubber_shows_no_secret():
    assert KEY not in repr(Scrubber([KEY]))
    assert KEY not in str([Scrubber([KEY])])


def test_scrubber_takes_the_longer_secret_first():
    assert (
        Scrubber(["abcdefgh", "abcdefghij"]).text("abcdefghij abcdefgh") == f"{REDACTED} {REDACTED}"
    )


@pytest.mark.parametrize(
    "written",
    [
        ODD,
        repr(ODD),
        json.dumps(ODD),
        json.dumps(ODD, ensure_ascii=False),
        quote(ODD),
        quote(ODD, safe=""),
        quote_plus(ODD),
        quote(ODD).lower(),
        msgspec.json.encode(ODD).decode(),
    ],
)
def test_text_finds_a_secret_in_every_encoding(written):
    assert REDACTED in Scrubber([ODD]).text(f"before {written} after")
    assert Scrubber([ODD]).text(written) != written


@given(secret_texts, json_values)
def test_line_stays_json_and_holds_no_secret(secret, value):
    """Secrets may be values, keys, or inside JSON within a string, at any depth."""
    once = msgspec.json.encode({secret: [f"a{secret}b"], "value": value})
    twice = msgspec.json.encode({"arguments": once.decode(), "value": value})
    for line in (once, twice):
        found = Scrubber([secret]).line(line)
        assert secret not in json.dumps(msgspec.json.decode(found), ensure_ascii=False)
        assert msgspec.json.encode(secret)[1:-1] not in found


@given(json_values)
def test_line_without_a_secret_is_left_as_it_is(value):
    line = msgspec.json.encode(value)
    assert Scrubber([KEY]).line(line) is line
    assert NOTHING_SECRET.line(line) is line


@pytest.mark.parametrize("secret", ["1234567890", "[1,2,3,4]", "null,null", "{},{},{}"])
def test_line_leaves_what_is_no_text_alone(secret):
    value = {"a": 51234567890, "b": [[1, 2, 3, 4], None, None, {}, {}, {}], "c": f"x{secret}y"}
    found = Scrubber([secret]).line(msgspec.json.encode(value))
    assert msgspec.json.decode(found) == {**value, "c": f"x{REDACTED}y"}


@given(secret_texts, st.text(max_size=20), st.text(max_size=20))
def test_text_holds_no_secret(secret, before, after):
    assert secret not in Scrubber([secret]).text(before + secret + after).replace(REDACTED, "\0")


def test_also_gives_a_new_scrubber():
    first = Scrubber([KEY])
    assert first.also(["short"]) is first
    assert first.also([KEY]) is first
    second = first.also(["another-secret-2"])
    assert second.text(f"{KEY} another-secret-2") == f"{REDACTED} {REDACTED}"
    assert first.text("another-secret-2") == "another-secret-2"
    assert NOTHING_SECRET.text(KEY) is KEY
    assert second


def test_environment_drops_what_holds_a_secret():
    environ = {"PATH": "/bin", "A_TOKEN": "hf_abcdefgh", "ODDLY_NAMED": f"x{KEY}", "N_KEY": "12"}
    assert Scrubber([KEY]).environment(environ) == {"PATH": "/bin", "N_KEY": "12"}


def test_environment_keeps_paths_whatever_they_are_made_of():
    kept = {"PATH": "/usr/lib/postgres15/bin:/bin", "HOME": "/home/postgres15", "N": "postgres"}
    dropped = {"A_URL": "x://postgres15:postgres15@h", "B_URL": "x://postgres:postgres@h"}
    dropped |= {"DB_PASSWORD": "postgres15", "SHORT_KEY": "pg-15", "ODD": "it is postgres15"}
    assert NOTHING_SECRET.environment({**kept, **dropped}) == kept


def test_text_finds_the_beginning_of_a_secret_where_a_message_was_cut():
    secret = "sk-proj-0123456789abcdefghij"
    scrubber = Scrubber([secret])
    assert scrubber.text(f"the key {secret[:12]}…") == f"the key {REDACTED}…"
    assert scrubber.text(f"the key {secret[:16]}") == f"the key {REDACTED}"
    assert scrubber.text("keys begin with sk-proj-, sk-proj-0 or sk-proj") == (
        "keys begin with sk-proj-, sk-proj-0 or sk-proj"
    )
    line = msgspec.json.encode({"message": f"the key {secret[:12]}…", "é": secret[:17]})
    found = msgspec.json.decode(scrubber.line(line))
    assert found == {"message": f"the key {REDACTED}…", "é": REDACTED}


def test_text_keeps_a_prefix_that_all_secrets_of_a_kind_share():
    head = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    key = "-----BEGIN RSA PRIVATE KEY-----"
    environ = {
        "A_JWT": f"{head}eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "SSH_KEY": f"{key}\nMIIEvQIBADANBgkqhkiG\nAgEAAoIBAQC7VJTUt9Us\n-----END KEY-----",
        "CREDENTIALS": '{"type": "service_account", "private_key_id": "0123456789abcdef0123"}',
    }
    scrubber = NOTHING_SECRET.also(environment_secrets(environ))
    told = f'decode {head}IxMjM0, {key} and {{"type": "service_account"}}'
    assert scrubber.text(told) == told
    for secret in environ.values():
        assert scrubber.text(secret) == REDACTED
        assert scrubber.text(secret[: len(secret) * 2 // 3]).startswith(REDACTED)


def test_line_keeps_keys_apart_that_differ_in_a_secret():
    secrets = ("sk-first-1234", "sk-second-1234", "sk-third-1234")
    line = msgspec.json.encode({"a": {secret: n for n, secret in enumerate(secrets)}, "b": 1 << 70})
    assert msgspec.json.decode(Scrubber(secrets).line(line)) == {
        "a": {REDACTED: 0, f"{REDACTED} 1": 1, f"{REDACTED} 2": 2},
        "b": 1 << 70,
    }


@given(
    st.text(st.characters(codec="utf-8"), min_size=16, max_size=30), st.integers(16, 30), st.text()
)
def test_line_with_a_part_of_a_secret_stays_json(secret, length, after):
    """The part may end inside an escape or inside a character of several bytes."""
    line = msgspec.json.encode({"a": secret[:length] + after, "b": 1})
    found = msgspec.json.decode(Scrubber([secret]).line(line))
    assert found["b"] == 1
    assert secret not in found["a"]
