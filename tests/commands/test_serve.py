"""Tests of `gym serve`: collecting from a server yields the same records as in process."""

import asyncio
import itertools
import signal
import socket
import struct
import subprocess
import sys
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from gymcli.mock import MockAnswer, MockServer
from gymcli.mock.behaviours import last_user_text, num_turns
from gymcli.mock.process import serving
from gymcli.models.endpoint import Endpoint
from gymcli.serving import Judges, Service
from gymcli.types import Usage
from tests.builders import gym, lines_of, write_rows
from tests.serving.asking import HERE, Served, row

SAME = ("reward", "components", "metrics", "answer", "details", "messages", "tools")
SAME += ("stop_reason", "step_rewards", "tool_errors", "seed", "num_prompt_messages")
GYM = [sys.executable, "-c", "from gymcli.cli import main; main()"]


def note(request):
    """Write down the nonce of the prompt, call a tool that does not exist, and say the nonce."""
    nonce = last_user_text(request).rstrip(".").split()[-1]
    if not num_turns(request):
        calls = [("write", {"text": nonce}), ("read", {}), ("nothing", {}), ("write", {"text": 1})]
        return MockAnswer(tool_calls=calls[: 1 + int(nonce) % 4])
    return nonce if int(nonce) % 7 else "no idea"


def guess(request):
    """Say the last word of the conversation; in every third task say something wrong."""
    first = next(m.text for m in request.messages if m.role == "user")
    is_stubborn = int(first.rstrip(".").split()[-1]) % 3 == 0
    return "no idea" if is_stubborn else last_user_text(request).rstrip(".").split()[-1]


def think(request):
    """Reason before the first answer in every second task."""
    number = int(next(m.text for m in request.messages if m.role == "user").rstrip(".").split()[-1])
    if number % 2 and num_turns(request) == 1:
        return MockAnswer(reasoning="Hm.", usage=Usage(completion_tokens=50))
    return MockAnswer(text="Well.", usage=Usage(completion_tokens=number))


def repeat(request):
    return last_user_text(request).rstrip(".").split()[-1]


def judge(request):
    return "yes" if last_user_text(request).endswith("1") else "no"


@pytest.fixture
def collected(working_folder, mock_server):
    """Return a function that collects tasks with a nonce each and returns records by task."""

    def collect(env, *arguments, tasks=range(20), out="run"):
        rows = [{"id": str(n), "nonce": str(n), "prompt": f"The note is {n}."} for n in tasks]
        write_rows("t.jsonl", rows)
        policy = ("--model", "m", "--base-url", mock_server.base_url, "--concurrency", "200")
        options = ("--env", env, "--out", out, "--quiet", "--seed", "3", "--max-turns", "6")
        gym("collect", "t.jsonl", *policy, *options, *arguments, exit_code=0)
        return {line["task_id"]: line for line in lines_of(Path(out) / "rollouts.jsonl")}

    return collect


def told(record):
    return {name: record.get(name) for name in SAME}


@pytest.mark.parametrize(
    ("name", "behaviour"),
    [("Notebook", note), ("Riddle", guess), ("Plain", note), ("TurnCounter", think)],
)
def test_a_served_environment_gives_the_same_records(collected, mock_server, name, behaviour):
    mock_server.behaviour = behaviour
    local = collected(f"{HERE}:{name}", out="local")
    with serving(Served(name)) as server:
        served = collected(f"environments={server.base_url}", out="served")
    assert {task: told(r) for task, r in served.items()} == {
        task: told(r) for task, r in local.items()
    }
    assert len({record["reward"] for record in local.values()}) > 1


def test_a_judge_is_asked_by_the_server(collected, mock_server):
    mock_server.behaviour = repeat
    with serving(MockServer(judge)) as judging:
        source = Endpoint(base_url=judging.base_url, model="j")
        judges = Judges({"judge": source})
        service = Service(f"{HERE}:Judged", judges=judges)
        with serving(Served("Judged", service=service)) as server:
            served = collected(f"environments={server.base_url}", out="served")
        role = ("--role", f"judge={judging.base_url}#j")
        local = collected(f"{HERE}:Judged", *role, out="local")
    assert {task: told(r) for task, r in served.items()} == {
        task: told(r) for task, r in local.items()
    }
    assert sum(record["reward"] for record in served.values()) == 2.0


def test_two_servers_mix_up_no_sessions(collected, mock_server):
    mock_server.behaviour = note
    with serving(Served("Notebook")) as first, serving(Served("Notebook")) as second:
        even = collected(f"a={first.base_url}", tasks=range(0, 80, 2), out="even")
        odd = collected(f"b={second.base_url}", tasks=range(1, 80, 2), out="odd")
    records = {**even, **odd}
    assert len(records) == 80
    for nonce, record in records.items():
        assert record["components"] == {"kept": 1.0, "said": float(int(nonce) % 7 > 0)}
        read = [m["content"] for m in record["messages"] if m["role"] == "tool"][1:2]
        assert read in ([], [nonce]), "the notes are those of this session"


def test_verify_asks_a_served_environment_again(collected, mock_server):
    mock_server.behaviour = note
    with serving(Served("Plain")) as server:
        collected(f"plain={server.base_url}")
        done = gym("verify", "run", "--env", f"plain={server.base_url}")
    assert done.exit_code == 0, done.stderr
    assert "20 rescored, 0 changed rewards" in done.stdout


def test_a_verifier_that_fails_on_the_server_is_no_reward(collected, mock_server, monkeypatch):
    monkeypatch.setenv("SERVED_API_KEY", "k-4f9a8b7c6d5e4f3a2b1c0d9e")
    mock_server.behaviour = note
    with serving(Served("Broken")) as server, pytest.raises(AssertionError):
        collected(f"broken={server.base_url}")
    assert not Path("run/rollouts.jsonl").exists()
    failures = lines_of(Path("run/failures.jsonl"))
    assert len(failures) == 20
    assert failures[0]["error"]["class"] == "VerifierError"
    assert "answers.db is missing" in failures[0]["error"]["message"]


@contextmanager
def process(*arguments, command="serve"):
    """Run `gym serve` as a process; yield it and its address."""
    command = [*GYM, command, *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        try:
            yield server, server.stdout.readline().decode().strip()
        finally:
            if server.poll() is None:
                server.kill()


def test_serve_ends_well_when_it_is_told_to():
    with process("mcqa") as (server, base_url):
        assert base_url.startswith("http://127.0.0.1:")
        server.terminate()
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert errors.decode().splitlines() == ["serving mcqa"]


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
BROKEN_OFF = {
    "nothing": b"",
    "a request line": b"POST /ver",
    "headers": HEAD + b"Content-Le",
    "headers without a body": HEAD + b"Content-Length: 1000\r\n\r\n",
    "half a body": HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 100_000,
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n400\r\nabc",
    "a wrong chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "what waits for a reply": HEAD + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    "a body that cannot be unpacked": HEAD
    + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    "requests whose answers are not read": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
}


@pytest.mark.parametrize(
    ("command", "path", "printed"), [("serve", "", ["serving mcqa"]), ("mock", "/models", [])]
)
def test_a_client_that_leaves_prints_nothing(command, path, printed):
    with process(*["mcqa"][: len(printed)], command=command) as (server, base_url):
        address = urllib.parse.urlsplit(base_url)
        for sent, is_reset in itertools.product(BROKEN_OFF.values(), (False, True)):
            client = socket.create_connection((address.hostname, address.port), timeout=60)
            client.sendall(sent)
            if is_reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with urllib.request.urlopen(base_url + path, timeout=60) as answer:
            assert answer.status == 200, "others are still served"
        server.terminate()
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert errors.decode().splitlines() == printed


HANGING = """import asyncio

from gymcli import Environment, Task, tool


class Hanging(Environment[Task]):
    @tool
    def look(self) -> str:
        \"\"\"Look.\"\"\"
        return "nothing"

    async def close(self) -> None:
        print("closing", flush=True)
        await asyncio.Event().wait()
"""


def test_serve_does_not_close_what_hangs_when_it_is_told_twice(tmp_path):
    path = tmp_path / "hanging.py"
    path.write_text(HANGING)

    async def seed(base_url):
        async with aiohttp.ClientSession() as client:
            url = f"{base_url}/seed_session"
            async with client.post(url, json=row("a")) as answer:
                assert answer.status == 200

    with process(f"{path}:Hanging") as (server, base_url):
        asyncio.run(seed(base_url))
        server.send_signal(signal.SIGINT)
        assert b"closing\n" in iter(server.stderr.readline, b"")  # stdout has only the address
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    assert server.returncode == 130


def test_serve_says_what_is_wrong():
    nameless = gym("serve", "mcqa", "--host", "a..b")
    assert (nameless.exit_code, "cannot listen on a..b:8000" in nameless.stderr) == (2, True)
    taken = gym("serve", "mcqa", "--host", "203.0.113.1", "--port", "9", exit_code=2)
    assert "cannot listen on 203.0.113.1:9" in taken.stderr
    assert "needs no key" in taken.stderr
    unknown = gym("serve", "mqca")
    assert (unknown.exit_code, 'did you mean "mcqa"' in unknown.stderr) == (2, True)
    for options in (("--max-sessions", "0"), ("--session-lifetime", "0"), ("--port", "70000")):
        gym("serve", "mcqa", *options, exit_code=2)
