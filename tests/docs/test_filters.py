"""The examples of docs/filters.md are valid, and its lists are complete."""

import re

from gymcli.store.filters import FUNCTIONS, MAX_CHARACTERS, OPERATORS, parse_filter
from gymcli.store.run_index import OPEN_NAMES, ROW_NAMES, RunIndex
from tests.builders import failed, scored, write_run
from tests.docs.pages import blocks, page, table_names, table_rows

TEXT = page("filters.md")


def words(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_examples_can_be_asked_of_a_run(tmp_path):
    rollouts = [
        scored("a", 0, 0.0, components={"format": 1.0}, task={"difficulty": "hard"}),
        scored("a", 1, 1.0, said="Sorry, I cannot", answer="A", details={"reason": "r"}),
    ]
    run = write_run(tmp_path / "run", rollouts=rollouts, failures=[failed("b")])
    [block] = blocks("text", TEXT)
    examples = block[1].splitlines()
    assert len(examples) == 14
    with RunIndex(run) as index:
        found = {text: index.select(parse_filter(text)) for text in examples}
    assert found['contains(text, "I cannot")'] == [1]
    assert found["0 < avg < 1"] == [0, 1]
    assert found['error in ("RateLimitError", "ServerError")'] == [2]
    assert found['task.difficulty == "hard" and components.format >= 0.5'] == [0]


def test_names_are_all_listed():
    names = table_names("name |", TEXT)
    plain = {name for name in names if "." not in name}
    assert plain == {*ROW_NAMES, "text"}
    assert {name.partition(".")[0] for name in names if "." in name} == set(OPEN_NAMES)


def test_functions_and_signs_are_all_listed():
    rows = dict(table_rows("what | how", TEXT))
    assert {name.partition("(")[0] for name in words(rows["functions"])} == set(FUNCTIONS)
    assert len(words(rows["compare"])) - 1 + len(words(rows["calculate"])) == 13
    assert len(OPERATORS) == 13 + len(("in", "not in", "is", "is not", "not", "-x", "+x"))
    assert f"{MAX_CHARACTERS:,} characters" in TEXT
