"""What reaches the terminal is harmless, whatever a model wrote."""

import asyncio
import io
import sys
import threading
import unicodedata
from contextlib import redirect_stdout

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.commands.console import (
    harmless,
    one_line,
    print_json,
    print_table,
    result,
    warn,
)
from gymcli.commands.signals import run_async
from tests.commands.running import HOSTILE, UNSAFE


@given(st.text())
def test_harmless_leaves_no_control_character(text):
    shown = harmless(text)
    assert all(c in "\n\t" or unicodedata.category(c) != "Cc" for c in shown)
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f") & set(
        shown
    )
    assert harmless(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b", "\\x9b"),
        ("\u202etxt", "\\u202etxt"),
        ("\ud800", "\\ud800"),
        ("a\r\nb\tc", "a\\x0d\nb\tc"),
        ("naïve 数 🙂", "naïve 数 🙂"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_harmless(text, shown):
    assert harmless(text) == shown


def test_result_writes_what_the_stream_can_carry(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    result("x\u00e9\ud800")
    stream.flush()
    assert stream.buffer.getvalue() == b"x\\xe9\\ud800\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_print_json_is_harmless_and_still_json(encoding, value):
    """Whatever the terminal can show, a reader of the output gets what was encoded."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with redirect_stdout(stream):
        print_json(msgspec.json.encode([value + HOSTILE]))
    stream.flush()
    printed = stream.buffer.getvalue()
    assert not set(UNSAFE) & set(printed.decode(encoding))
    assert msgspec.json.decode(printed.decode(encoding)) == [value + HOSTILE]


def test_print_table_keeps_a_row_on_its_line(capsys):
    print_table(("name", "answer"), [(f"a\n{HOSTILE}", "1"), ("b", "two\t\nlines")])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 3
    assert not set(UNSAFE) & set(printed)


@given(st.text(), st.integers(2, 50))
def test_one_line_is_one_line_and_short(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_run_async_without_uvloop(monkeypatch):
    """Where uvloop cannot be had, the standard loop serves."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def answer():
        return 7

    assert run_async(answer()) == 7


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_run_async_waits_for_no_thread(monkeypatch, has_uvloop):
    if not has_uvloop:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    release, results = threading.Event(), []

    async def main():
        assert await asyncio.to_thread(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        waiting = asyncio.create_task(asyncio.to_thread(lambda: results.append(release.wait(60))))
        await asyncio.sleep(0)
        waiting.cancel()

    run_async(main())
    assert results == []
    release.set()


def test_warn_is_one_line(capsys):
    warn("gone: a\nwarning: b\r\nc")
    assert capsys.readouterr().err == "warning: gone: a warning: b c\n"
