"""Tests that text of a model, a row or an endpoint reaches the terminal only as text."""

import io
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymcli.commands.console import SafeStream, display_of
from gymcli.secrets import NOTHING_SECRET, Scrubber
from gymcli.types import FunctionCall, Message, ToolCall
from tests.builders import HOSTILE, clean_environment, failed, gym, scored
from tests.reporting.html_pages import write_run

BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
texts = st.text(max_size=40) | st.sampled_from(
    [HOSTILE, "[bold]", "\x1b]0;a\x07", "\r\x08\x7f\x85"]
)


def assert_harmless(shown):
    """Check that a terminal obeys no character of a text but newline and tab."""
    found = {c for c in shown if unicodedata.category(c) == "Cc" or c in BIDI} - {"\n", "\t"}
    assert not found


def hostile_run(folder, text):
    """Write a run of one rollout and one failure with the text in every possible place."""
    call = ToolCall(id=text, function=FunctionCall(text, text))
    said = Message(role="assistant", content=text, reasoning=text, tool_calls=[call])
    same = {"env": f"e{text}", "model": text, "messages": [said]}
    rollout = scored(f"a{text}", answer=text, final_state={text: text}, metrics={text: 1.0}, **same)
    rollout.details = {"reason": text, text: [text]}
    error = failed(f"b{text}", error=text or "E", said=text, **same)
    write_run(folder, rollout, error, model=text)
    return rollout.task_id


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
def test_show_and_metrics_print_nothing_that_a_terminal_obeys(tmp_path_factory, text):
    text = text.encode(errors="replace").decode()
    run = tmp_path_factory.mktemp("runs") / "run"
    task_id = hostile_run(run, text)
    for arguments in (
        ("show", run, task_id),
        ("show", run, task_id, "--json"),
        ("show", run, f"b{text}"),
        ("metrics", run, "--by-task"),
        ("metrics", run, "--by-task", "--json"),
        ("envs", f"e{text}"),
    ):
        ended = gym(*arguments)
        assert_harmless(ended.stdout)
        assert_harmless(ended.stderr)


@given(st.lists(texts, max_size=5))
def test_safe_stream_passes_all_text_and_nothing_else(pieces):
    beneath = io.StringIO(newline="")
    stream = SafeStream(beneath, NOTHING_SECRET)
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    stream.flush()
    assert_harmless(beneath.getvalue())
    assert all(c in beneath.getvalue() for c in "".join(c for c in "".join(pieces) if c.isalnum()))


@given(st.integers(1, 8), st.text("abc \n", max_size=10))
def test_safe_stream_finds_a_secret_that_comes_in_pieces(size, around):
    beneath = io.StringIO()
    stream = SafeStream(beneath, Scrubber(["sk-in-pieces"]))
    told = f"{around}sk-in-pieces{around}\n"
    stream.writelines(told[start : start + size] for start in range(0, len(told), size))
    assert beneath.getvalue() == told.replace("sk-in-pieces", "[redacted]")


def test_safe_stream_shows_no_way_around_itself():
    stream = SafeStream(sys.__stdout__, NOTHING_SECRET)
    assert not hasattr(stream, "buffer")
    assert stream.encoding == sys.__stdout__.encoding
    with pytest.raises(TypeError):
        stream.write(b"bytes")


def test_display_lets_escapes_through_and_no_secret():
    beneath = io.StringIO()
    display = display_of(SafeStream(beneath, Scrubber(["sk-in-a-display"])))
    display.write("\x1b[2K sk-in-a-display")
    display.flush()
    assert beneath.getvalue() == "\x1b[2K [redacted]"
    assert display_of(beneath) is beneath


PROGRAM = """
import asyncio, logging, os, sys, warnings
from gymcli.commands.console import hide, make_safe
make_safe(os.environ)
hide(["sk-added-later"])
told = os.environ["A_TOKEN"] + " sk-added-later \\x1b[2J \\u202e"
print(told)
warnings.warn(told)
logging.getLogger("anything").error(told)
async def lose():
    asyncio.get_running_loop().create_future().set_exception(RuntimeError(told))
asyncio.run(lose())
raise ValueError(told)
"""


def test_tracebacks_warnings_and_lost_exceptions_are_safe():
    environ = {**clean_environment(), "A_TOKEN": "hf_abcdefgh", "PYTHONIOENCODING": "utf-8"}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True)
    shown = ended.stdout.decode() + ended.stderr.decode()
    assert ended.returncode == 1
    assert "Traceback" in shown
    assert "never retrieved" in shown
    assert "hf_abcdefgh" not in ended.stderr.decode()
    assert "sk-added-later" not in shown
    assert ended.stdout.decode().startswith("hf_abcdefgh [redacted] \\x1b[2J")
    assert shown.count("[redacted] [redacted] \\x1b[2J") >= 4
    assert_harmless(shown)


@pytest.mark.slow
def test_options_that_are_echoed_are_safe(tmp_path):
    command = [sys.executable, "-c", "from gymcli.cli import main; main()"]
    environ = {**clean_environment(), "A_TOKEN": "hf_abcdefgh"}
    for arguments in (
        ["\x1b[2Jhf_abcdefgh"],
        ["show", "--\x1b[2Jhf_abcdefgh"],
        ["show", "\x1bhf_abcdefgh", "a"],
    ):
        ended = subprocess.run(
            [*command, *arguments], env=environ, capture_output=True, cwd=tmp_path
        )
        shown = ended.stdout.decode() + ended.stderr.decode()
        assert ended.returncode == 2
        assert "[redacted]" in shown
        assert "hf_abcdefgh" not in shown
        assert_harmless(shown)


def test_log_file_is_safe(tmp_path):
    """A record is one line, without escapes."""
    log = tmp_path / "log"
    run = tmp_path / "run"
    hostile_run(run, HOSTILE)
    gym("--log-file", log, "show", run, "nothing")
    assert_harmless(log.read_text())
