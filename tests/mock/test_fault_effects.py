"""Tests of every fault on the wire: which bytes come, and how the connection ends."""

import asyncio
import email.utils
import time
import typing

import msgspec
import pytest

from gymcli.errors import InvalidAnswerError
from gymcli.mock import Faults, MockAnswer, MockServer, fixed, scripted
from gymcli.mock.fault_effects import HUGE, UNKNOWN_FINISH, UNKNOWN_TOOL
from gymcli.mock.faults import BURST_LENGTH, DeliveryFault, StatusFault
from gymcli.models.chat import decode
from gymcli.models.dialects import DIALECTS
from gymcli.models.http import EventReader
from gymcli.types import Answer
from tests.mock.talking import PATHS, Bytes, body_for, on_both_loops, raw, run_on

FORMS = [(dialect, stream) for dialect in PATHS for stream in (False, True)]
in_all_forms = pytest.mark.parametrize(("dialect", "stream"), FORMS)

SOME_TEXT = fixed("a text of some length")

CODES = {
    "401": (401, "invalid_api_key"),
    "404": (404, "model_not_found"),
    "503": (503, None),
    "529": (529, None),
    **dict.fromkeys(("429", "429-after", "429-date", "429-burst"), (429, "rate_limit_exceeded")),
    **dict.fromkeys(("500", "500-once", "500-always", "500-echo"), (500, None)),
    **dict.fromkeys(("403", "403-always"), (403, "forbidden")),
    "403-rate": (403, None),
}


def ask(
    kind: str,
    dialect: str,
    stream: bool,
    *,
    behaviour=SOME_TEXT,
    loop: str = "asyncio",
    **options,
) -> tuple[Bytes, MockServer]:
    """Meet a fault; return what came, and the server."""
    body = body_for(dialect, **({"stream": True} if stream else {}), **options.pop("body", {}))

    async def run():
        faults = Faults.parse([kind] if kind else [])
        async with MockServer(behaviour, faults=faults) as server:
            return await raw(server, PATHS[dialect], body, **options), server

    return run_on(loop, run())


def read(dialect: str, stream: bool, content: bytes) -> Answer:
    """Read a body as a client does."""
    if stream:
        reader = EventReader()
        events = [*reader.feed(content), *reader.finish()]
        return DIALECTS[dialect].answer(DIALECTS[dialect].assemble(events))
    return DIALECTS[dialect].answer(decode(content))


def answer_to(kind: str, dialect: str, stream: bool, **options) -> Answer:
    """Return an answer that arrives, with its fault."""
    came, server = ask(kind, dialect, stream, **options)
    assert (came.ending, came.head[:12]) == ("closed", "http/1.1 200")
    assert server.stats.faults == ({kind: 1} if kind else {})
    return read(dialect, stream, came.content)


@in_all_forms
@pytest.mark.parametrize("kind", [kind for kind in typing.get_args(StatusFault) if kind in CODES])
def test_refusals_are_errors_in_the_shape_of_openai(kind, dialect, stream):
    came, server = ask(kind, dialect, stream)
    status, code = CODES[kind]
    assert came.head.startswith(f"http/1.1 {status} ")
    assert "content-type: application/json" in came.head
    error = msgspec.json.decode(came.content)["error"]
    assert (error["code"], error["param"]) == (code, None)
    assert error["message"]
    assert error["type"]
    assert ("retry-after" in came.head) == (kind in ("429-after", "429-date"))
    assert (server.stats.by_status, server.stats.faults) == ({status: 1}, {kind: 1})


def test_502_is_a_page_of_a_proxy():
    came, _ = ask("502", "chat", False)
    assert came.head.startswith("http/1.1 502 ")
    assert "content-type: text/html" in came.head
    assert came.content.startswith(b"<html>")


def test_every_refusal_is_looked_at():
    assert {*CODES, "307", "405", "422-echo", "500-page", "502"} == {*typing.get_args(StatusFault)}


@pytest.mark.parametrize("kind", ["422-echo", "500-echo", "500-page"])
def test_echoes_repeat_the_text(kind):
    came, _ = ask(kind, "chat", False)
    assert came.head.startswith(f"http/1.1 {kind[:3]} ")
    assert b"hello" in came.content


def test_405_and_307_are_of_a_path():
    came, _ = ask("405", "chat", False)
    assert came.head.startswith("http/1.1 405 ")
    came, _ = ask("307", "chat", False)
    assert came.head.startswith("http/1.1 307 ")
    assert "location: /elsewhere" in came.head


@on_both_loops
@in_all_forms
@pytest.mark.parametrize("kind", ["interim-100", "interim-103"])
def test_interim_responses_come_before_the_answer(kind, dialect, stream, loop):
    came, server = ask(kind, dialect, stream, loop=loop)
    assert came.head.startswith(f"http/1.1 {kind[-3:]} ")
    assert came.body.startswith(b"HTTP/1.1 200 OK\r\n")
    assert server.stats.faults == {kind: 1}


@in_all_forms
def test_open_stream_sends_all_and_never_ends(dialect, stream):
    num_bytes = len(ask("", dialect, stream)[0].data)
    if not stream:
        assert len(ask("open-stream", dialect, stream)[0].data) == num_bytes
        return
    came, _ = ask("open-stream", dialect, stream, until=num_bytes - len(b"0\r\n\r\n"))
    assert came.ending == "open"
    assert read(dialect, stream, came.content).message.text == "a text of some length"


def test_429_after_says_seconds():
    assert "\r\nretry-after: 1\r\n" in ask("429-after", "chat", False)[0].head + "\r\n"


def test_429_date_says_a_time_to_come():
    before = time.time()
    came, _ = ask("429-date", "chat", False)
    [line] = [line for line in came.head.split("\r\n") if line.startswith("retry-after: ")]
    found = email.utils.parsedate_to_datetime(line.removeprefix("retry-after: ")).timestamp()
    assert before + 1 <= found <= time.time() + 2


async def test_burst_refuses_whatever_follows():
    faults = Faults.parse(["429-burst@first"])
    async with MockServer(faults=faults) as server:
        texts = ["before", "first", *["after"] * BURST_LENGTH]
        came = [await raw(server, "/responses", {"model": "m", "input": t}) for t in texts]
        assert [one.head[9:12] for one in came] == ["200", *["429"] * BURST_LENGTH, "200"]


@pytest.mark.parametrize(
    ("kind", "statuses"), [("500-once", "500 200 200"), ("500-always", "500 500 500")]
)
async def test_500_once_and_always(kind, statuses):
    async with MockServer(faults=Faults.parse([kind])) as server:
        came = [await raw(server, "/responses", {"input": "x"}) for _ in range(3)]
        assert [one.head[9:12] for one in came] == statuses.split()


@on_both_loops
@in_all_forms
def test_reset_comes_before_any_byte(dialect, stream, loop):
    came, server = ask("reset", dialect, stream, loop=loop)
    assert came == (b"", "reset")
    assert (server.stats.num_unanswered, server.stats.faults) == (1, {"reset": 1})


@on_both_loops
@in_all_forms
def test_stall_sends_nothing(dialect, stream, loop):
    """The request counts as in flight until the client leaves."""

    async def run():
        body = body_for(dialect, stream=stream)
        async with MockServer(faults=Faults.parse(["stall@hello"])) as server:
            asked = asyncio.ensure_future(raw(server, PATHS[dialect], body))
            while not server.in_flight:
                await asyncio.sleep(0)
            other = await raw(server, PATHS[dialect], body_for(dialect, "other"))
            assert (other.head[9:12], asked.done(), server.in_flight) == ("200", False, 1)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        return server.stats

    stats = run_on(loop, run())
    assert (stats.in_flight, stats.num_unanswered, stats.by_status) == (0, 1, {200: 1})


def whole(dialect: str, stream: bool) -> bytes:
    """Return the body without a fault; its timestamps have the same length."""
    came, _ = ask("", dialect, stream)
    return came.content


@on_both_loops
@in_all_forms
def test_reset_body_comes_in_the_middle(dialect, stream, loop):
    came, server = ask("reset-body", dialect, stream, loop=loop)
    expected = whole(dialect, stream)
    assert came.ending == "reset"
    assert came.head.startswith("http/1.1 200 ")
    # Some systems discard unread data when the reset arrives.
    assert len(came.content) in (len(expected) // 2, 0)
    if not stream:
        assert f"content-length: {len(expected)}" in came.head
    assert (server.stats.by_status, server.stats.num_unanswered) == ({200: 1}, 0)


@on_both_loops
@in_all_forms
def test_stall_body_stops_in_the_middle(dialect, stream, loop):
    expected = whole(dialect, stream)
    half = len(expected) // 2

    async def run():
        async with MockServer(
            fixed("a text of some length"), faults=Faults.parse(["stall-body"])
        ) as server:
            came = await raw(
                server,
                PATHS[dialect],
                body_for(dialect, **({"stream": True} if stream else {})),
                until=half + 100,
            )
            return came, server.in_flight

    came, in_flight = run_on(loop, run())
    assert (came.ending, in_flight) == ("open", 1)
    assert came.head.startswith("http/1.1 200 ")
    with pytest.raises(InvalidAnswerError):
        read(dialect, stream, came.content)


@on_both_loops
@in_all_forms
def test_half_json_is_good_http(dialect, stream, loop):
    came, _ = ask("half-json", dialect, stream, loop=loop)
    assert came.ending == "closed"
    if stream:
        assert came.body.endswith(b"0\r\n\r\n")
    else:
        assert f"content-length: {len(came.body)}" in came.head
    with pytest.raises(InvalidAnswerError, match="not JSON"):
        read(dialect, stream, came.content)


@on_both_loops
@in_all_forms
def test_wrong_length_announces_more_than_comes(dialect, stream, loop):
    came, server = ask("wrong-length", dialect, stream, loop=loop)
    [line] = [line for line in came.head.split("\r\n") if line.startswith("content-length: ")]
    assert int(line.removeprefix("content-length: ")) == len(came.body) + 64
    assert came.ending == "closed"
    assert read(dialect, stream, came.body).message.text == "a text of some length"
    assert server.stats.by_status == {200: 1}


@pytest.mark.parametrize("fault", typing.get_args(DeliveryFault))
def test_a_script_may_name_delivery_faults(fault):
    if fault.startswith("stall"):
        return
    came, server = ask("", "chat", False, behaviour=scripted([MockAnswer(text="x", fault=fault)]))
    assert came.ending in ("reset", "closed")
    assert server.stats.faults == {fault: 1}


@in_all_forms
def test_empty_choices(dialect, stream):
    came, _ = ask("empty-choices", dialect, stream)
    if dialect == "responses":
        assert read(dialect, stream, came.content).message.text == ""
        assert b'"output":[]' in came.content
        return
    assert b'"choices":[]' in came.content
    assert b'"delta"' not in came.content
    with pytest.raises(InvalidAnswerError):
        read(dialect, stream, came.content)


@in_all_forms
def test_null_content(dialect, stream):
    calls = scripted([MockAnswer(text="x", tool_calls=[("add", {})])])
    answer = answer_to("null-content", dialect, stream, behaviour=calls)
    assert (answer.message.content, answer.message.tool_calls) == ("", [])
    came, _ = ask("null-content", dialect, stream)
    assert (b'"content":null' if dialect == "chat" else b'"content":[]') in came.content


@in_all_forms
def test_unknown_finish(dialect, stream):
    answer = answer_to("unknown-finish", dialect, stream)
    assert answer.message.text == "a text of some length"
    assert (answer.finish_reason, answer.unknown_finish) == ("stop", UNKNOWN_FINISH)
    came, _ = ask("unknown-finish", dialect, stream)
    key = "finish_reason" if dialect == "chat" else "reason"
    assert f'"{key}":"{UNKNOWN_FINISH}"'.encode() in came.content


@in_all_forms
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("finish-abort", b"abort"),
        ("finish-error", b"error"),
        ("finish-cancelled", b"cancelled"),
        ("finish-insufficient", b"insufficient_system_resource"),
    ],
)
def test_unfinished_answers_say_why_and_lack_their_end(kind, word, dialect, stream):
    came, _ = ask(kind, dialect, stream)
    key = b"finish_reason" if dialect == "chat" else b"reason"
    assert b'"%b":"%b"' % (key, word) in came.content
    assert b"length" not in came.content


@in_all_forms
@pytest.mark.parametrize("kind", ["null-finish", "empty-message"])
def test_answers_that_say_nothing_took_no_tokens(kind, dialect, stream):
    came, server = ask(kind, dialect, stream)
    assert server.stats.num_completion_tokens == 0
    assert b"a text of" not in came.content
    if dialect == "chat":
        nothing = b'"finish_reason":null' if kind == "null-finish" else b'"finish_reason":"stop"'
        assert nothing in came.content
        assert (b'"role":"assistant"' in came.content) == (kind == "null-finish")


@in_all_forms
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("bad-arguments", '{"a":1 and'),
        ("double-arguments", r'"{\"a\":1}"'),
        ("array-arguments", '[{"a":1}]'),
    ],
)
def test_arguments(kind, arguments, dialect, stream):
    calls = scripted([MockAnswer(tool_calls=[("add", {"a": 1})])])
    [call] = answer_to(kind, dialect, stream, behaviour=calls).message.tool_calls
    assert (call.name, call.arguments) == ("add", arguments)


@in_all_forms
def test_unknown_tool(dialect, stream):
    calls = scripted([MockAnswer(tool_calls=[("add", {"a": 1})])])
    [call] = answer_to("unknown-tool", dialect, stream, behaviour=calls).message.tool_calls
    assert (call.name, call.arguments) == (UNKNOWN_TOOL, '{"a":1}')


@in_all_forms
@pytest.mark.parametrize("made", [[("add", {"a": 1})], [("add", {"a": 1}), ("now", {})]])
def test_duplicate_ids(made, dialect, stream):
    calls = scripted([MockAnswer(tool_calls=made)])
    came, _ = ask("duplicate-ids", dialect, stream, behaviour=calls)
    key = b'"id":"call_' if dialect == "chat" else b'"call_id":"call_'
    ids = [part.partition(b'"')[0] for part in came.content.split(key)[1:]]
    assert len(ids) >= 2
    assert len(set(ids)) == 1
    if not (dialect == "chat" and stream):  # there the index distinguishes the calls
        calls = read(dialect, stream, came.content).message.tool_calls
        assert [call.id for call in calls] == ["call_twice"] * 2


@in_all_forms
def test_faults_of_calls_make_one_where_there_is_none(dialect, stream):
    body = {"body": {"has_tools": True}}
    [call] = answer_to("double-arguments", dialect, stream, **body).message.tool_calls
    assert (call.name, call.arguments) == ("add", '"{}"')


@in_all_forms
def test_faults_of_calls_need_tools(dialect, stream):
    came, server = ask("unknown-tool", dialect, stream)
    assert read(dialect, stream, came.content).message.text == "a text of some length"
    assert server.stats.faults == {}


@in_all_forms
def test_huge(dialect, stream):
    text = answer_to("huge", dialect, stream).message.text
    assert len(text) >= HUGE
    assert text.startswith("a text of some length\na text of some length\n")


@pytest.mark.parametrize(
    ("kind", "happens"),
    [
        ("500", True),
        ("reset", True),
        ("empty-choices", True),
        ("null-content", True),
        ("huge", False),
    ],
)
async def test_numbers_have_the_faults_that_fit(kind, happens):
    async with MockServer(fixed("0.5"), faults=Faults.parse([kind])) as server:
        await raw(server, "/score", {"text_1": "a", "text_2": "b"})
        assert server.stats.faults == ({kind: 1} if happens else {})
