"""Statistics of task files, against counts by hand."""

import gzip
import statistics

import msgspec
import pytest

from gymcli.data.statistics import describe_tasks
from tests.builders import write_rows

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("look", "go")
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def described(tmp_path, *rows, **options):
    path = tmp_path / "tasks.jsonl"
    write_rows(path, rows)
    return describe_tasks([path], **options)


def test_describe_tasks_measures_prompts(tmp_path):
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE, IMAGE]},
        {"role": "assistant", "content": "A dot."},
        {"role": "user", "content": "Sure?"},
    ]
    found = described(tmp_path, {"prompt": "one two"}, {"messages": talk, "tools": TOOLS[:1]})

    means = {name: (spread.num, spread.mean) for name, spread in found.spreads.items()}
    assert means == {
        "prompt_characters": (2, (7 + 9 + 11 + 6 + 5) / 2),
        "prompt_words": (2, (2 + 2 + 3 + 2 + 1) / 2),
        "messages": (2, 2.5),
        "user_turns": (2, 1.5),
        "tools": (1, 1.0),
    }
    assert found.num_images == 2
    assert found.tool_names == {"look": 1}


def test_describe_tasks_spreads_numbers(tmp_path):
    values = [0.0, 0.25, 0.5, 1.0]
    rows = [{"prompt": str(value), "params": {"temperature": value}} for value in values]
    found = described(tmp_path, {"prompt": "?", "params": {"stop": "x", "logprobs": True}}, *rows)

    spread = found.spreads["params.temperature"]
    assert (spread.num, spread.mean, spread.min, spread.max) == (4, 0.4375, 0.0, 1.0)
    assert spread.standard_deviation == pytest.approx(statistics.stdev(values))
    assert (spread.median, spread.p90, spread.p99) == pytest.approx((0.375, 0.85, 0.985))
    assert not {"params.stop", "params.logprobs"} & found.spreads.keys()


def test_describe_tasks_counts_rows_tasks_and_prompts(tmp_path):
    row = {"id": "a", "prompt": "?", "env": "maths"}
    rows = [
        row,
        row,
        {**row, "id": "b"},
        {**row, "id": "c", "tools": TOOLS},
        {"prompt": "!"},
        {"prompt": "!"},
        {"prompt": 3},
        {**row, "prompt": "!!"},
    ]
    found = described(tmp_path, *rows)

    assert (found.num_rows, found.num_tasks, found.num_wrong) == (6, 4, 2)
    assert (found.num_unique_prompts, found.num_unique_user_texts) == (3, 2)
    assert found.num_without_id == 1
    assert found.environments == {"maths": 4, "": 2}
    assert found.tool_names == {"look": 1, "go": 1}


def test_describe_tasks_counts_values_that_are_few_and_short(tmp_path):
    rows = [
        {
            "id": str(n),
            "prompt": "?",
            "level": "easy" if n % 3 else "hard",
            "is_odd": bool(n % 2),
            "many": str(n // 2),
            "long": "x" * 41,
            "pairs": str(n // 2) if n < 10 else "x",
            "score": n % 2,
            "often": None if n else "once",
        }
        for n in range(60)
    ]
    found = described(tmp_path, *rows)

    assert found.fields == {
        "level": {"easy": 40, "hard": 20},
        "pairs": {"x": 50, '"0"': 2, '"1"': 2, '"2"': 2, '"3"': 2, '"4"': 2},
        "is_odd": {"false": 30, "true": 30},
        "score": {"0": 30, "1": 30},
        "often": {"null": 59, "once": 1},
    }


def test_describe_tasks_counts_a_field_whose_values_stand_twice_on_average(tmp_path):
    twice, once = (
        [{"id": str(n), "prompt": "?", "level": f"l{n // 2}"} for n in range(num)] for num in (6, 5)
    )

    assert described(tmp_path, *twice).fields == {"level": {"l0": 2, "l1": 2, "l2": 2}}
    assert described(tmp_path, *once).fields == {}


def test_describe_tasks_tells_texts_from_other_values(tmp_path):
    values = [True, "true", None, "null", 1, "1", "", " ", "a\nb", "yes"] * 2
    found = described(tmp_path, *({"prompt": str(n), "x": x} for n, x in enumerate(values)))

    assert set(found.fields["x"]) == {
        *("true", '"true"', "null", '"null"', "1", '"1"', '""', '" "', '"a\\nb"', "yes")
    }


def test_describe_tasks_leaves_out_numbers_that_cannot_be_summed(tmp_path):
    seeds = [10**400, 1.7e308, -1.7e308, 1e150, -1e150, 1]
    found = described(tmp_path, *({"prompt": str(n), "params": {"seed": n}} for n in seeds))

    spread = found.spreads["params.seed"]
    assert (spread.num, spread.min, spread.max) == (3, -1e150, 1e150)
    assert spread.standard_deviation == pytest.approx(1e150)


def test_describe_tasks_counts_ids_by_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(msgspec.json.encode({"id": "1", "prompt": name}))
    found = describe_tasks([tmp_path / "a", tmp_path / "b"])

    assert (found.num_tasks, found.num_wrong) == (2, 0)


def test_describe_tasks_reads_templates_environments_and_archives(tmp_path):
    (tmp_path / "prompt.yaml").write_text('user: "Say {word}."')
    with gzip.open(tmp_path / "raw.jsonl.gz", "wb") as file:
        file.write(b'{"word":"yes"}\n{"word":"no"}\n')
    found = describe_tasks([tmp_path / "raw.jsonl.gz"], prompt=tmp_path / "prompt.yaml")
    assert found.num_unique_user_texts == 2

    found = describe_tasks(["mcqa", "arithmetic"])
    assert found.environments == {"mcqa": 60, "arithmetic": 60}
    assert found.fields["difficulty"]["medium"] > 20
