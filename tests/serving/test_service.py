"""Tests of the protocols as clients speak them: seed_session, tools, verify; reset, step, close."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from gymcli.errors import UsageError
from gymcli.serving import Limits, Service
from gymcli.serving.protocol import ServedRequest
from tests.serving.asking import HERE, Client, Clock, Served, client_of, response, row, said
from tests.serving.environments import CLOSED, Lingering


@asynccontextmanager
async def client_on(server):
    """Start a server, and return a client of it."""
    async with server, client_of(server) as client:
        yield client


def on(server, talk):
    """Return what a function of a client returns while the server is up."""

    async def run():
        async with client_on(server) as client:
            return await talk(client)

    return asyncio.run(run())


async def notebook(client, nonce):
    """Play as NeMo Gym's simple_agent does."""
    assert await client.post("seed_session", row(nonce)) == {}
    status, text, headers = await client.ask("POST", "write", {"text": nonce})
    assert (status, text) == (200, '{"num_notes":1}')
    assert headers["Set-Cookie"].startswith("gymcli___environments=")
    call = {"type": "function_call", "call_id": "c", "name": "write", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": text}
    body = {**row(nonce), "response": response(call, output, said(nonce))}
    return await client.post("verify", body)


def test_a_row_is_seeded_played_and_verified():
    answer = on(Served("Notebook"), lambda client: notebook(client, "n1"))
    assert answer["reward"] == 1.0
    assert answer["reward_components"] == {"kept": 1.0, "said": 1.0}
    assert answer["extracted_answer"] == "n1"
    assert (answer["num_turns"], answer["reason"]) == (2.0, "kept and said")
    assert answer["nonce"] == "n1", "the row is echoed"
    assert answer["response"]["output"][-1]["content"][0]["text"] == "n1"


async def test_a_session_has_one_cookie_that_cannot_be_guessed():
    async with client_on(Served("Notebook")) as client:
        _, _, first = await client.ask("POST", "seed_session", row("a"))
        _, _, second = await client.ask("POST", "read", {})
        first = first["Set-Cookie"]
        second = second["Set-Cookie"]
    assert first == second
    value, *attributes = first.split("; ")
    assert len(value.partition("=")[2]) >= 32
    assert attributes == ["path=/", "Max-Age=1209600", "httponly", "samesite=lax"]


NAMELESS = """from gymcli import Environment, Score, Task, tool


class Any(Environment[Task]):
    @tool
    def look(self) -> str:
        \"\"\"Look.\"\"\"
        return "nothing"
"""


async def test_a_name_that_is_no_cookies_name_costs_no_session(tmp_path):
    path = tmp_path / "my env; é.py"
    path.write_text(NAMELESS)
    async with client_on(Served("", service=Service(f"{path}:Any"))) as client:
        await client.post("seed_session", row("a"))
        status, text, headers = await client.ask("POST", "look", {})
    assert (status, text) == (200, "nothing")
    assert headers["Set-Cookie"].startswith("gymcli___my_env___=")


async def test_sessions_at_once_are_never_mixed_up():
    server = Served("Notebook")
    async with client_on(server) as _:

        async def one(nonce):
            async with client_of(server) as client:
                return await notebook(client, nonce)

        answers = await asyncio.gather(*(one(f"n{number}") for number in range(60)))
    assert [answer["reward"] for answer in answers] == [1.0] * 60
    assert [answer["extracted_answer"] for answer in answers] == [f"n{n}" for n in range(60)]


async def test_calls_of_one_session_wait_for_each_other():
    async with client_on(Served("Notebook")) as client:
        await client.post("seed_session", row("a"))
        calls = (client.ask("POST", "write", {"text": str(n)}) for n in range(5))
        texts = [text for _, text, _ in await asyncio.gather(*calls)]
        texts = sorted(texts)
        notes = (await client.ask("POST", "read", {}))[1]
    assert texts == [f'{{"num_notes":{n}}}' for n in range(1, 6)]
    assert sorted(notes.split(", ")) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("path", "data", "status", "words"),
    [
        ("nothing", b"{}", 404, "There is no tool 'nothing'. Available tools: write, read"),
        ("write", b'{"text": 3}', 422, "The arguments of write do not fit its schema"),
        ("write", b"{", 422, "The arguments of write are not valid JSON"),
        ("write", b"[1]", 422, "The arguments of write must be a JSON object, not an array."),
        ("open_drawer", b"{}", 500, "open_drawer failed: ValueError: the drawer is stuck."),
        ("..%2Fverify", b"{}", 404, "There is no tool '../verify'"),
        ("final_state", b"{}", 404, "There is no tool 'final_state'"),
        ("__init__", b"{}", 404, "There is no tool '__init__'"),
        ("wait_for_ever", b"{}", 504, "wait_for_ever did not finish within 0.2 seconds."),
        ("write", b"\xff", 422, "The arguments of write are not valid JSON"),
    ],
)
async def test_a_call_that_cannot_be_made_is_told_to_the_model(path, data, status, words):
    async with client_on(Served("Notebook")) as client:
        await client.post("seed_session", row("a"))
        found, text, _ = await client.ask("POST", path, data=data)
    assert found == status
    assert text.startswith(words)


@pytest.mark.parametrize(
    ("method", "path", "data", "status", "words"),
    [
        ("POST", "seed_session", b"{", 422, "the body is not a JSON object"),
        ("POST", "seed_session", b"[]", 422, "the body is not a JSON object"),
        ("POST", "seed_session", b"{}", 422, "responses_create_params"),
        ("POST", "seed_session", b'{"responses_create_params": 1}', 422, "must be an object"),
        (
            "POST",
            "seed_session",
            b'{"responses_create_params": {"input": "hi"}}',
            422,
            "the row does not fit environment environments",
        ),
        (
            "POST",
            "seed_session",
            b'{"nonce": "a", "responses_create_params": {}}',
            422,
            "no prompt: neither",
        ),
        (
            "POST",
            "seed_session",
            b'{"responses_create_params": {}, "reward_components": {"a": 1' + b"0" * 400 + b"}}",
            422,
            "too large",
        ),
        ("POST", "verify", b"{}", 400, "no session"),
        ("POST", "write", b"{}", 400, "no session"),
        ("GET", "verify", None, 405, "Method Not Allowed"),
        ("GET", "nothing", None, 404, "Not Found"),
        ("POST", "one/two", b"{}", 404, "Not Found"),
        ("POST", "seed_session", b" " * 2**14 + b"{}", 413, "the body is longer than 16,384 bytes"),
        ("POST", "aggregate_metrics", b"{}", 422, "verify_responses"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(method, path, data, status, words):
    found, text, _ = on(Served("Notebook"), lambda client: client.ask(method, path, data=data))
    assert found == status
    assert words in msgspec.json.decode(text)["detail"]


def test_a_page_in_a_browser_is_refused():
    headers = {"Origin": "http://example.org"}
    body = {**row("p"), "response": response(said("p"))}
    answered = on(
        Served("Plain"), lambda client: client.ask("POST", "verify", body, headers=headers)
    )
    assert answered[0] == 403


def test_a_body_that_cannot_be_unpacked_is_refused():
    headers = {"Content-Encoding": "gzip"}
    status, text, _ = on(
        Served("Plain"), lambda client: client.ask("POST", "verify", headers=headers, data=b"{}")
    )
    assert (status, "the body cannot be read" in text) == (400, True)


async def test_cookies_of_others_do_no_harm():
    async with client_on(Served("Notebook")) as client:
        _, _, seeded = await client.ask("POST", "seed_session", row("a"))
        own = seeded["Set-Cookie"].partition(";")[0]
        client.cookies.clear()
        assert (await client.ask("POST", "read", {}, headers={"Cookie": f'a="{{; {own}; [=]'}))[
            0
        ] == 200


async def test_a_session_cannot_be_seeded_again():
    """Some agents let a model call any path as a tool."""
    async with client_on(Served("Notebook")) as client:
        await client.post("seed_session", row("a"))
        status, text, _ = await client.ask("POST", "seed_session", row("easy"))
    assert status == 409
    assert "this session has started" in text


async def test_verify_takes_the_row_of_the_session():
    """A model that reaches `/verify` cannot bring its own task."""
    async with client_on(Served("Notebook")) as client:
        await client.post("seed_session", row("hard"))
        await client.ask("POST", "write", {"text": "easy"})
        assert (await client.post("verify", {**row("easy"), "response": response(said("easy"))}))[
            "reward"
        ] == 0.0


async def test_a_row_may_have_a_field_that_is_named_as_our_key():
    async with client_on(Served("Notebook")) as client:
        odd = row("a", gymcli={"messages": 3})
        await client.post("seed_session", odd)
        await client.post("write", {"text": "a"})
        answer = await client.post("verify", {**odd, "response": response(said("a"))})
    assert (answer["reward"], answer["gymcli"]) == (1.0, {"messages": 3})


async def test_fields_of_an_earlier_verdict_are_dropped():
    stale = {"reward": 0.5, "reward_components": {"old": 1.0}, "extracted_answer": "old"}
    failure = {"_ng_failure_class": "judge_failed", "mask_sample": True}
    async with client_on(Served("Plain")) as client:
        assert await client.post(
            "verify", {**row("p"), "response": response(said("p")), **stale, **failure}
        ) == {**row("p"), "response": response(said("p")), "reward": 1.0}


async def test_a_verdict_that_needs_no_session_is_given_when_it_is_over():
    async with client_on(Served("Plain")) as client:
        await client.post("seed_session", row("p"))
        body = {**row("p"), "response": response(said("p"))}
        assert [(await client.post("verify", body))["reward"] for _ in range(2)] == [1.0, 1.0]


async def test_verify_ends_the_session_and_closes_its_environment():
    async with client_on(Served("Notebook")) as client:
        CLOSED.clear()
        await notebook(client, "ended")
        closed = list(CLOSED)
        (status, text, _) = await client.ask("POST", "read", {})
    assert closed == ["ended"]
    assert status == 410
    assert "this session is over" in text


async def test_a_session_that_nobody_uses_ends():
    clock = Clock()
    server = Served("Notebook", limits=Limits(session_lifetime=60.0), clock=clock)
    async with client_on(server) as client:
        CLOSED.clear()
        await client.post("seed_session", row("idle"))
        clock.now = 59.0
        first = await client.ask("POST", "read", {})
        clock.now = 118.0
        second = await client.ask("POST", "read", {})
        clock.now = 179.0
        third = await client.ask("POST", "read", {})
        # The server does this on a timer, which follows real time and not the clock of the test.
        await server.service._sessions.expire()
        statuses = [status for status, _, _ in (first, second, third)]
        closed = list(CLOSED)
        text = third[1]
    assert statuses == [200, 200, 410]
    assert closed == ["idle"]
    assert "--session-lifetime" in text


async def test_a_full_server_says_when_to_come_again():
    server = Served("Notebook", limits=Limits(max_sessions=2))
    async with client_on(server) as client:
        for name in ("a", "b"):
            async with client_of(server) as other:
                await other.post("seed_session", row(name))
        refused = await client.ask("POST", "seed_session", row("c"))
        async with client_of(server) as other:
            _, health, _ = await other.ask("GET", "")
        (status, text, headers) = refused
        health = msgspec.json.decode(health)
    assert status == 503
    assert headers["Retry-After"] == "5"
    assert "2 sessions are open" in text
    assert health["status"] == "ok"
    assert health["num_sessions"] == 2


async def test_sessions_that_nobody_uses_make_room():
    clock = Clock()
    server = Served("Notebook", limits=Limits(session_lifetime=60.0, max_sessions=1), clock=clock)
    async with client_on(server) as client:
        CLOSED.clear()
        await client.post("seed_session", row("old"))
        clock.now = 61.0
        assert (await client.post("seed_session", row("new")), list(CLOSED)) == ({}, ["old"])


def test_what_is_open_is_closed_at_the_end():
    CLOSED.clear()
    on(Served("Notebook"), lambda client: client.post("seed_session", row("last")))
    assert CLOSED == ["last"]


async def test_what_is_open_is_closed_at_once():
    server = Served("Lingering")
    Lingering.most_closing = 0
    async with client_on(server) as _:
        for name in ("a", "b", "c"):
            async with client_of(server) as client:
                await client.post("seed_session", row(name))
    assert (Lingering.num_closing, Lingering.most_closing) == (0, 3)


async def test_close_ends_a_session_once_and_twice():
    async with client_on(Served("Notebook")) as client:
        CLOSED.clear()
        await client.post("seed_session", row("shut"))
        assert (await client.post("close", {}), await client.post("close", {}), list(CLOSED)) == (
            {},
            {},
            ["shut"],
        )


async def test_the_gymnasium_dialect_gives_the_score_as_its_rewards():
    async with client_on(Served("Riddle")) as client:
        opening = await client.post("reset", row("r", _ng_rollout_index=0))
        body = {**row("r"), "response": response(said("no number"))}
        first = await client.post("step", body)
        number = first["observation"].removeprefix("It is ").removesuffix(".")
        last = await client.post("step", {**row("r"), "response": response(said(number))})
        after = await client.ask("POST", "step", body)
        after = after[0]
        closed = await client.post("close", {})
    assert opening == {"observation": "Guess. (r)", "info": {"supports_explicit_close": True}}
    assert (first["reward"], first["terminated"]) == (-0.25, False)
    assert (last["observation"], last["terminated"], last["truncated"]) == (None, True, False)
    assert first["reward"] + last["reward"] == pytest.approx((1.0 - 0.25) / 2)
    assert (after, closed) == (409, {})


async def test_the_gymnasium_dialect_ends_with_the_turns_of_the_environment():
    async with client_on(Served("Riddle")) as client:
        await client.post("reset", row("r"))
        body = {**row("r"), "response": response(said("no number"))}
        steps = [await client.post("step", body) for _ in range(5)]
    assert [step["truncated"] for step in steps] == [False] * 4 + [True]
    assert not any(step["terminated"] for step in steps)
    assert sum(step["reward"] for step in steps) == pytest.approx(5 * -0.25 / 2)


async def test_the_gymnasium_dialect_ends_with_a_message_that_was_cut_off():
    async with client_on(Served("TurnCounter")) as client:
        await client.post("reset", row("r"))
        usage = {"input_tokens": 1, "output_tokens": 500}
        whole = {**response(said("a")), "usage": usage}
        cut = {**whole, "incomplete_details": {"reason": "max_output_tokens"}}
        first = await client.post("step", {**row("r"), "response": whole})
        last = await client.post("step", {**row("r"), "response": cut})
    assert (first["observation"], first["truncated"]) == ("That was 1.", False)
    assert (last["observation"], last["truncated"], last["terminated"]) == (None, True, False)
    assert first["reward"] + last["reward"] == 1.0, "the score, of the tokens of both"


def test_an_environment_that_talks_is_not_for_agents_that_only_call_tools():
    status, text, _ = on(
        Served("Riddle"), lambda client: client.ask("POST", "seed_session", row("r"))
    )
    assert status == 404
    assert "/reset and /step" in text


def test_a_row_without_state_is_verified_without_a_session():
    async def talk(client):
        body = {**row("p"), "response": response(said("p"))}
        _, mode, _ = await client.ask("GET", "reverify_mode")
        return mode, await client.post("verify", body), len(client.cookies)

    mode, answer, num_cookies = on(Served("Plain"), talk)
    assert (mode, answer["reward"], num_cookies) == ('"stateless"', 1.0, 0)
    _, mode, _ = on(Served("Notebook"), lambda client: client.ask("GET", "reverify_mode"))
    assert mode == '"unsupported"'


async def test_a_verifier_that_fails_is_an_error_and_never_a_reward(monkeypatch, caplog):
    monkeypatch.setenv("SERVED_API_KEY", "k-4f9a8b7c6d5e4f3a2b1c0d9e")
    async with client_on(Served("Broken")) as client:
        await client.post("seed_session", row("b"))
        status, text, _ = await client.ask(
            "POST", "verify", {**row("b"), "response": response(said("b"))}
        )
    assert status == 500
    error = msgspec.json.decode(text)["error"]
    assert (error["class"], error["phase"]) == ("VerifierError", "verify")
    assert error["message"] == "FileNotFoundError: answers.db is missing; [redacted]"
    assert "reward" not in text
    assert "Traceback" not in text
    assert "/srv" not in text
    assert "/srv/data/answers.db is missing; [redacted]" in caplog.text


@pytest.mark.parametrize("dialect", ["tools", "own"])
def test_what_a_tool_raises_is_told_without_secrets_and_paths(monkeypatch, dialect):
    monkeypatch.setenv("SAFE_KEY", "k-4f9a8b7c6d5e4f3a2b1c0d9e")
    call = {"id": "c", "function": {"name": "open_safe", "arguments": "{}"}}
    message = {"role": "assistant", "tool_calls": [call]}

    async def talk(client):
        if dialect == "tools":
            await client.post("seed_session", row("a"))
            return await client.ask("POST", "open_safe", {})
        seed = {"Gymcli-Seed": "1"}
        await client.post("seed_session", row("a"), headers=seed)
        body = {"gymcli": {"messages": [message]}}
        return await client.ask("POST", "step", body, headers=seed)

    _, text, _ = on(Served("Notebook"), talk)
    if dialect == "own":
        text = msgspec.json.decode(text)["gymcli"]["messages"][0]["content"]
    assert text == "open_safe failed: RuntimeError: secret.txt has [redacted]."


async def test_a_prefix_that_names_the_rollout_is_left_out():
    async with client_on(Served("Notebook")) as client:
        prefixed = Client(client._session, f"{client._base_url}/ng-rollout/3:1")
        assert (await notebook(prefixed, "p"))["reward"] == 1.0


def test_options_of_the_environment_hold():
    server = Served("Notebook", env_args={"bonus": "2.5"})
    assert on(server, lambda client: notebook(client, "o"))["reward"] == 3.5


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (f"{HERE}:Together", "scores all attempts of a task together"),
        ("http://127.0.0.1:1", "is on a server already"),
        (f"{HERE}:Judged", "needs a model for the role judge"),
        ("mqca", 'did you mean "mcqa"?'),
    ],
)
def test_what_cannot_be_served_is_said_at_the_start(env, words):
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        Service(env)


def test_what_does_not_close_is_logged_and_costs_no_score(caplog):
    assert on(Served("Notebook"), lambda client: notebook(client, "unclosable"))["reward"] == 1.0
    assert "close failed: OSError: it does not close" in caplog.text


async def test_a_session_in_use_does_not_end():
    clock = Clock()
    server = Served("Notebook", limits=Limits(session_lifetime=60.0), clock=clock)
    async with client_on(server) as client:
        await client.post("seed_session", row("busy"))
        [session] = server.service._sessions._open.values()
        async with server.service._sessions.turn(session):
            clock.now = 100.0
            await server.service._sessions.expire()
            clock.now = 200.0
        clock.now = 259.0
        assert (await client.ask("POST", "read", {}))[0] == 200


async def test_a_request_that_waited_while_its_session_ended_is_refused():
    server = Served("Notebook")
    async with client_on(server) as client:
        await client.post("seed_session", row("a"))
        [session] = server.service._sessions._open.values()
        async with session.lock:
            waiting = asyncio.create_task(client.ask("POST", "read", {}))
            # Without this wait the session would end before the request reaches it.
            while not session.lock._waiters:
                await asyncio.sleep(0)
            await server.service._sessions.end(session)
        status, text, _ = await waiting
    assert (status, "this session is over" in text) == (410, True)


def test_a_seed_that_is_no_number_is_refused():
    status, text, _ = on(
        Served("Notebook"),
        lambda client: client.ask(
            "POST", "seed_session", row("a"), headers={"Gymcli-Seed": "-1e9"}
        ),
    )
    assert (status, "Gymcli-Seed: must be a whole number" in text) == (422, True)


def test_a_server_that_has_not_begun_says_so():
    request = ServedRequest("GET", "/", {}, b"")
    answer = asyncio.run(Service(f"{HERE}:Plain").answer(request))
    assert (answer.status, answer.headers) == (503, (("Retry-After", "1"),))
