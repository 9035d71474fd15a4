"""Tests of the help, of messages about wrong usage, and of `gym docs`."""

import re
import shlex

import pytest
import typer.main
from typer.core import TyperGroup, TyperOption
from typer.testing import CliRunner

from gymcli.benchmarks.resolution import names_benchmark
from gymcli.cli import app, load_command
from gymcli.command_line import Heading
from gymcli.commands.collect import EXAMPLES
from gymcli.commands.help import HelpCommand
from tests.builders import NO_ENDPOINT, gym

COLLECT_HEADINGS = [
    "What to run",
    "Model",
    "Sampling",
    "How much",
    "Budgets",
    "Results",
    "Distributed",
    "Expert",
    "Options",
    "Examples",
]


def commands():
    """Return every command with its path."""
    found = []
    waiting = [((), typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop()
        if len(path) == 1:
            command = load_command(path[0])
        found.append((path, command))
        if isinstance(command, TyperGroup):
            waiting += [((*path, name), one) for name, one in command.commands.items()]
    return found


def help_of(*path, width=80):
    done = CliRunner().invoke(app, [*path, "--help"], env={**NO_ENDPOINT, "COLUMNS": str(width)})
    assert done.exit_code == 0
    return done.stdout


def test_help_of_collect_has_groups_and_examples():
    text = help_of("collect")
    assert re.findall(r"^(\S.*):$", text, re.MULTILINE) == COLLECT_HEADINGS
    assert text.count("    gym collect ") == 4


def test_the_line_of_a_command_in_the_help_of_gym_is_the_first_sentence_of_its_own():
    """A command is not imported for the help of `gym`."""
    for name, stand_in in typer.main.get_command(app).commands.items():
        text = load_command(name).help.partition("\n\n")[0]
        assert " ".join(text.split()) == stand_in.help, name


def test_every_option_of_a_long_command_is_in_a_group():
    """An option without `rich_help_panel` would stand below the others, with --help."""
    without = [
        f"{' '.join(path)} {option.opts[0]}"
        for path, command in commands()
        if isinstance(command, HelpCommand) and len(command.params) > 12
        for option in command.params
        if isinstance(option, TyperOption) and option.rich_help_panel not in set(Heading)
    ]
    assert without == []


def test_no_option_says_text():
    """A value is named by what it is, not by its type in Python."""
    for path, _ in commands():
        assert not re.search(r" TEXT|<\w+>|list\[|x>=", help_of(*path)), path


@pytest.mark.parametrize("width", [60, 80, 200])
def test_help_fits_the_terminal_and_cuts_nothing(width):
    for path, command in commands():
        text = help_of(*path, width=width)
        assert max(map(len, text.splitlines())) <= width, path
        words = " ".join(text.split())
        assert " ".join(command.help.split("\n\n")[0].split()) in words
        if isinstance(command, TyperGroup):
            for one in command.commands.values():
                assert " ".join(one.help.split("\n\n")[0].split()) in words


def test_examples_can_be_parsed(tmp_path, working_folder):
    """They name options, environments and benchmarks that exist."""
    (tmp_path / "tasks.jsonl").write_text(
        '{"prompt": "?", "options": [{"A": "a"}], "expected_answer": "A"}'
    )
    lines = EXAMPLES.replace("\\\n", " ").splitlines()
    examples = [shlex.split(line)[1:] for line in lines if line.startswith("    gym ")]
    assert len(examples) == 4
    for line in examples:
        if "gsm8k" in line:  # its tasks are in the network
            assert all(map(names_benchmark, line[1 : line.index("-m")]))
            continue
        line = ["oracle" if word in ("NAME", "local") else word for word in line]
        if "--base-url" in line:
            at = line.index("--base-url")
            del line[at : at + 2]
        gym(*line, "--dry-run", exit_code=0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("collect t --repeats two", "--repeats two: is not a whole number"),
        ("collect t --temperature hot", "--temperature hot: is not a number"),
        ("collect t -j 0", "--concurrency 0: must be 1 or more"),
        (
            "export r --to x -o f",
            "--to x: is not one of sft, dpo, kto, tokens, openenv, jsonl, parquet, csv, nemo-gym",
        ),
        ("init x --pattern single-stp", 'did you mean "single-step"?'),
        ("collect t --modle m", 'gym collect: has no option --modle; did you mean "--model"?'),
        ("collect t --gate", "--gate: needs a value"),
        ("collect t --json=1", "--json: takes no value"),
        (
            "collect",
            "gym collect: needs TASKS; usage: gym collect TASKS...; gym collect --help explains it",
        ),
        (
            "envs a b",
            "gym envs: unexpected argument b; usage: gym envs [NAME]; gym envs --help explains it",
        ),
        (
            "mock a b",
            "gym mock: unexpected arguments a b; usage: gym mock; gym mock --help explains it",
        ),
        (
            "merge a",
            "gym merge: needs --out; usage: gym merge RUN... --out PATH; gym merge --help explains "
            "it",
        ),
        ("dtaa", 'gym: has no command "dtaa"; did you mean "data"?'),
        ("data xyz", 'gym data: has no command "xyz"; gym data --help lists them'),
        ("--verbose", "gym: needs a command; gym --help lists them"),
    ],
)
def test_wrong_usage_is_one_line_in_our_words(line, words):
    done = CliRunner().invoke(app, shlex.split(line), env=NO_ENDPOINT, prog_name="gym")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"{words}\n")
    assert done.stderr.count("\n") == 1


def test_a_missing_argument_is_named_with_the_usage():
    """Of every command that needs one."""
    needing = [
        (" ".join(("gym", *path)), path)
        for path, command in commands()
        if isinstance(command, HelpCommand) and any(one.required for one in command.params)
    ]
    assert len(needing) > 10
    for name, path in needing:
        done = CliRunner().invoke(app, [*path], env=NO_ENDPOINT, prog_name="gym")
        assert done.exit_code == 2
        form = rf"error: {name}: needs [A-Z_-]+; usage: {name} \S.*; {name} --help explains it\n"
        assert re.fullmatch(form, done.stderr), done.stderr


def test_docs_lists_and_prints_pages():
    listed = gym("docs", exit_code=0)
    assert re.search(r"^mock +The mock server$", listed.stdout, re.MULTILINE)
    longest = r"^tutorials/several-environments  Several environments"
    assert re.search(longest, listed.stdout, re.MULTILINE)
    for name in ("mock", "docs/mock.md"):
        assert gym("docs", name).stdout.startswith("# The mock server\n")
    wrong = gym("docs", "mok")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        'error: no page "mok" of the documentation; did you mean "mock"? (gym docs lists them)\n',
    )


def test_help_names_pages_that_exist():
    """The files of docs/ are not where a user of the package would look for them."""
    for path, _ in commands():
        text = help_of(*path)
        assert not re.search(r"docs/\w+\.md", text), path
        for page in re.findall(r"`gym docs (\S+)`", text):
            gym("docs", page, exit_code=0)
