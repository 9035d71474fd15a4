"""The examples of docs/data.md run as shown, and its lists are complete."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
import typer.main

from gymcli import data
from gymcli.commands.data import app
from gymcli.data import rendered_rows
from gymcli.errors import UsageError
from gymcli.serving import Service
from gymcli.tasks.row_map import RowMap
from gymcli.tasks.table_files import local_rows
from tests.builders import gym
from tests.docs.pages import (
    blocks,
    check_commands,
    page,
    shown_commands,
    table_names,
    write_blocks,
)
from tests.serving.asking import Served

TEXT = page("data.md")

FILES = {"yaml": "yaml", "json": "jsonl?", "csv": "csv", "python": "py"}
"""Languages of the blocks that show files, with their suffixes."""


@pytest.fixture
def folder(tmp_path, working_folder):
    """Return a folder with every file of the page as the working directory."""
    for language, suffix in FILES.items():
        write_blocks(TEXT, language, suffix, tmp_path)
    return tmp_path


def test_commands_print_what_is_shown(folder):
    commands = shown_commands(TEXT)
    assert len(commands) == 21
    check_commands(commands, folder)

    [solved] = map(msgspec.json.decode, (folder / "solved.jsonl").read_bytes().splitlines())
    assert solved["expected_answer"] == "1003"
    assert solved["prompt"].endswith("Put the answer in \\boxed{}.")


@pytest.mark.parametrize("command", sorted(typer.main.get_command(app).commands))
def test_options_are_all_described(command):
    section = TEXT.split(f"## gym data {command}\n")[1].split("\n## ")[0]
    options = set(re.findall(r"--[a-z-]+", gym("data", command, "--help").stdout))

    assert options >= {"--help"}
    for option in options - {"--help", "--out", "--num"}:  # the page names -o and -n instead
        assert option in section


def test_map_has_the_keys_that_are_shown():
    assert table_names("key |", TEXT) == list(RowMap.model_fields)


def test_sources_are_those_that_are_shown():
    suffixes = [name for name in table_names("SOURCE |", TEXT) if name.startswith(".")]
    with pytest.raises(UsageError) as raised:
        local_rows(Path("table.numbers"))

    assert sorted(suffixes) == sorted(re.findall(r"\.\w+", str(raised.value).partition("(")[2]))


def test_functions_are_those_that_are_shown():
    names = re.findall(r"`(\w+)`", TEXT.split("The same as a library: ")[1].split(" in\n")[0])

    assert len(names) == 6
    assert set(names) <= set(data.__all__)


async def test_rows_for_verl_are_scored_by_the_function_of_the_page_on_training():
    [code] = [one[1] for one in blocks("python", page("training.md")) if "compute_score" in one[1]]
    [row] = rendered_rows("arithmetic", to="verl", limit=1)
    async with Served("", service=Service("arithmetic")) as server:
        names = {}
        exec(code.replace("http://127.0.0.1:8000", server.base_url), names)
        given = (row["reward_model"]["ground_truth"], row["extra_info"])
        assert [
            await asyncio.to_thread(names["compute_score"], row["data_source"], said, *given)
            for said in ("It is 19.", "It is 20.")
        ] == [1.0, 0.0]
