"""Finding environments by name, and the options that they receive."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.environment.contract import Environment
from gymcli.environment.description import describe
from gymcli.environment.registry import (
    Registration,
    Registry,
    candidates,
    environment_options,
    is_code,
    shipped_tasks,
    split_env_args,
)
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import EnvironmentImportError, UnknownNameError, UsageError

SOURCE = '''
"""An environment for tests."""
from gymcli import Environment, EnvironmentOptions, Score, Task

class Quiz(Environment[Task]):
    """Ask something."""

    version = "3"

    class Options(EnvironmentOptions):
        level: int = 1
        kinds: list[str] | None = None

    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)

class Other(Quiz):
    """Ask something else."""
'''


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a small distribution with entry points, for one test."""
    installed = []

    def install(points, **sources):
        lines = "".join(f"{name} = {value}\n" for name, value in points.items())
        write(
            tmp_path / "quizzes-1.0.dist-info" / "METADATA",
            """\
            Metadata-Version: 2.1
            Name: quizzes
            Version: 1.0
            """,
        )
        write(tmp_path / "quizzes-1.0.dist-info" / "entry_points.txt", f"[gymcli.envs]\n{lines}")
        for name, source in sources.items():
            write(tmp_path / f"{name}.py", source)
        installed.extend(sources)
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    for name in installed:
        sys.modules.pop(name, None)


def test_find_gives_a_built_in_environment():
    found = Registry().find("arithmetic")
    assert (found.name, found.environment.__name__) == ("arithmetic", "Arithmetic")
    assert found.environment.__module__ == "gymcli.envs.arithmetic"
    assert re.fullmatch("code-[0-9a-f]{16}", found.source_hash)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mcqa_simple_agent", "mcqa"),
        ("mcqa_agent", "mcqa"),
        ("mcqa_resources_server", "mcqa"),
        ("example_multi_turn_gymnasium", "example_multi_turn"),
        ("example_multi_turn_gymnasium_agent", "example_multi_turn"),
        ("example_single_tool_call_simple_agent", "example_single_tool_call"),
        ("structured_outputs_v3_simple_agent", "structured_outputs"),
        ("structured_outputs_v4_simple_agent", "structured_outputs"),
        ("blackjack_gymnasium_agent", "blackjack"),
        ("grl_sokoban_gymnasium_agent", "sokoban"),
        ("genrm_simple_agent", "genrm_compare"),
        ("genrm_simple_agent_reasoning_off", "genrm_compare"),
        ("conversational_tool_use_agent", "conversational_tool_use_simulation"),
        ("math_with_judge_claude_code_agent", "math_with_judge"),
        ("gsm8k_aviary_agent", "aviary"),
    ],
)
def test_find_accepts_names_of_other_projects(name, expected):
    assert Registry().find(name).name == expected


def test_candidates_try_the_name_itself_first():
    assert candidates("quiz") == ["quiz"]
    assert candidates("x_simple_agent") == ["x_simple_agent", "x", "x_simple"]


def test_find_remembers_what_it_found():
    registry = Registry()
    assert registry.find("arithmetic") is registry.find("arithmetic")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("arithmetics", '; did you mean "arithmetic"?'),
        ("qqqq", ""),
        ("", ""),
        ("envs/quiz.py", "; code is named on the command line only: --env envs/quiz.py"),
    ],
)
def test_find_says_that_there_is_none_and_what_was_meant(name, hint):
    with pytest.raises(UnknownNameError) as caught:
        Registry().find(name)
    assert str(caught.value) == f'no environment "{name}"{hint} (gym envs lists them)'


@pytest.mark.parametrize("name", ["os:path", "gymcli:Environment", "../quiz.py:Quiz", "__init__"])
def test_find_runs_no_code_that_a_data_row_names(name):
    with pytest.raises(UnknownNameError):
        Registry().find(name)


def test_registry_finds_a_class_in_a_file_by_spec_and_by_the_name_in_records(tmp_path):
    path = write(tmp_path / "my_quiz.py", SOURCE)
    registry = Registry((f"{path}:Quiz",))
    found = registry.find(f"{path}:Quiz")
    assert found is registry.find("my_quiz")
    assert (found.name, found.environment.version) == ("my_quiz", "3")
    again = Registry((f"{path}:Quiz", f"{path}:Other"))
    assert again.find(f"{path}:Quiz").environment is found.environment
    assert again.find("my_quiz").environment.__name__ == "Other"
    assert again.find("my_quiz").source_hash == found.source_hash


def test_registry_takes_the_only_environment_of_a_file(tmp_path):
    path = write(tmp_path / "quiz.py", SOURCE.partition("class Other")[0])
    found = Registry((str(path),)).find(str(path))
    assert (found.name, found.environment.__name__) == ("quiz", "Quiz")

    path = write(tmp_path / "two.py", SOURCE)
    with pytest.raises(UsageError) as raised:
        Registry((str(path),))
    assert str(raised.value) == (
        f"{path}: defines several environments; name one: {path}:Quiz or {path}:Other"
    )
    path = write(tmp_path / "none.py", "from gymcli import Environment")
    with pytest.raises(UsageError, match=r"none\.py: defines no class that is a subclass of"):
        Registry((str(path),))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("quiz.py", True),
        ("./a b/quiz.py:Quiz", True),
        ("package.module:Quiz", True),
        ("quiz", False),
        ("quiz.jsonl", False),
        ("hf:org/name", False),
        ("http://host:80", False),
        ("here:file", False),
    ],
)
def test_is_code(working_folder, name, expected):
    Path("here:file").touch()
    assert is_code(name) == expected


@pytest.mark.parametrize("target", ["mcqa", "{path}:Quiz", "gymcli.envs.mcqa:MultipleChoice"])
def test_registry_resolves_an_alias(tmp_path, target):
    path = write(tmp_path / "quiz.py", SOURCE)
    spec = f"bbh_aviary_agent={target.format(path=path)}"
    registry = Registry((spec,))
    found = registry.find("bbh_aviary_agent")
    assert found is registry.find(spec)
    assert found is registry.find(found.name)
    assert found.name == ("quiz" if "path" in target else "mcqa")


def test_registry_prefers_an_alias_to_a_built_in_name():
    registry = Registry(("mcqa_simple_agent=arithmetic",))
    assert registry.find("mcqa_simple_agent").name == "arithmetic"
    assert registry.find("mcqa").name == "mcqa"


def test_find_agent_falls_back_to_what_is_given():
    registry = Registry()
    assert registry.find_agent("mcqa_simple_agent", "arithmetic").name == "mcqa"
    assert not registry.agent_warnings
    for _ in range(2):
        assert registry.find_agent("tales_gymnasium_agent", "arithmetic").name == "arithmetic"
    [warning] = registry.agent_warnings
    assert warning.startswith('no environment is known for the agent "tales_gymnasium_agent"')
    with pytest.raises(
        UnknownNameError, match="--env tales_gymnasium_agent=ENV names the environment"
    ):
        registry.find_agent("tales_gymnasium_agent", None)
    with pytest.raises(UnknownNameError):
        registry.find("tales_gymnasium_agent")


def test_registry_finds_a_class_in_a_module():
    registry = Registry(("gymcli.envs.arithmetic:Arithmetic", "mcqa"))
    assert registry.find("arithmetic") is registry.find("gymcli.envs.arithmetic:Arithmetic")
    assert registry.find("mcqa").name == "mcqa"


@pytest.mark.parametrize(
    ("source", "spec", "error", "words"),
    [
        (None, "{path}:Quiz", UsageError, "quiz.py: no such file (from the environment"),
        (SOURCE, "{path}:Quizz", UnknownNameError, "has no class Quizz (from the environment"),
        (SOURCE, "{path}:Quizz", UnknownNameError, 'did you mean "Quiz"?'),
        (SOURCE, "{path}:Score", EnvironmentImportError, "is not a subclass of gymcli.Environment"),
        ("thing = 3", "{path}:thing", EnvironmentImportError, "is not a subclass of"),
        ("1 / 0", "{path}:Quiz", EnvironmentImportError, "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "{path}:Quiz", EnvironmentImportError, "SystemExit: 3"),
        ("def", "{path}:Quiz", EnvironmentImportError, "SyntaxError: "),
        (None, "no.such.module:Quiz", EnvironmentImportError, "ModuleNotFoundError: No module"),
        (None, ":Quiz", EnvironmentImportError, "ValueError: Empty module name"),
        (None, "quiz=http://127.0.0.1:9/?a=b", UsageError, "without a query or a fragment"),
    ],
)
def test_registry_says_what_is_wrong_with_code_in_one_line(tmp_path, source, spec, error, words):
    path = tmp_path / "quiz.py"
    if source is not None:
        write(path, source)
    with pytest.raises(error, match=re.escape(words)) as caught:
        Registry((spec.format(path=path),))
    assert "\n" not in str(caught.value)


def test_registry_imports_a_file_anew_that_failed_before(tmp_path):
    path = write(tmp_path / "quiz.py", "1 / 0")
    with pytest.raises(EnvironmentImportError):
        Registry((f"{path}:Quiz",))
    write(path, SOURCE + "# mended, and longer than before\n")
    assert Registry((f"{path}:Quiz",)).find("quiz").environment.version == "3"


def test_names_lists_ours_without_importing_them():
    code = (
        "import sys; from gymcli.environment.registry import Registry; print(*Registry.names()); "
        "print([name for name in sys.modules if name.startswith('gymcli.envs.')])"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    names, imported = listed.stdout.decode().splitlines()
    assert {"arithmetic", "mcqa"} <= set(names.split())
    assert imported == "[]"


def test_names_lists_plug_ins_without_importing_them(install):
    install({"pub_quiz": "pub_quiz_module:Quiz"}, pub_quiz_module="1 / 0")
    assert "pub_quiz" in Registry.names()
    assert "pub_quiz_module" not in sys.modules


@pytest.mark.parametrize(
    ("point", "name", "source"),
    [
        ("plug:Quiz", "pub_quiz", SOURCE),
        ("plug:Quiz", "pub_quiz_simple_agent", SOURCE),
        ("plug", "pub_quiz", SOURCE.replace("class Other", "class _Other")),
        ("plug", "pub_quiz", SOURCE.replace("class Other(Quiz):", "Same = Quiz\nclass Other:")),
    ],
)
def test_find_gives_the_environment_of_a_plug_in(install, point, name, source):
    """The entry point names a class, or a module that defines one."""
    install({"pub_quiz": point}, plug=source)
    found = Registry().find(name)
    assert (found.name, found.environment.__name__) == ("pub_quiz", "Quiz")
    assert re.fullmatch("code-[0-9a-f]{16}", found.source_hash)
    assert describe(found)["version"] == "3"


@pytest.mark.parametrize(
    ("point", "source", "words"),
    [
        ("plug:Quiz", "import not_there_at_all", "ModuleNotFoundError: No module named"),
        ("plug:Nothing", SOURCE, "AttributeError: "),
        ("plug", SOURCE, "must define one Environment class, found Quiz, Other"),
        ("plug", "from gymcli import Environment", "must define one Environment class, found none"),
        ("plug:nothing", "nothing = 3", "the entry point plug:nothing is not a subclass of"),
    ],
)
def test_find_says_what_is_wrong_with_a_plug_in(install, point, source, words):
    install({"pub_quiz": point}, plug=source)
    with pytest.raises(EnvironmentImportError, match=re.escape(words)) as caught:
        Registry().find("pub_quiz")
    assert "\n" not in str(caught.value)


def test_find_prefers_ours_to_a_plug_in_of_the_same_name(install):
    install({"arithmetic": "plug:Quiz"}, plug=SOURCE)
    assert Registry.names().count("arithmetic") == 1
    assert Registry().find("arithmetic").environment.__module__ == "gymcli.envs.arithmetic"


def test_describe_says_what_gym_envs_shows(tmp_path):
    path = write(tmp_path / "quiz.py", SOURCE)
    described = describe(Registry((f"{path}:Quiz",)).find("quiz"))
    assert described == {
        "name": "quiz",
        "description": "Ask something.",
        "version": "3",
        "max_reward": 1.0,
        "tools": [],
        "options": {"level": "whole number", "kinds": "list of texts"},
        "structure": "single-step",
        "capability": "",
        "domain": "",
        "task_type": "",
        "verification": "",
        "roles": [],
        "rescore": "verify",
        "skipped_checks": {},
        "tasks": None,
        "extra": None,
    }


def test_describe_of_one_without_a_docstring_is_empty():
    class Silent(Environment):
        pass

    Silent.__doc__ = ""
    assert describe(Registration("silent", Silent, ""))["description"] == ""


def test_shipped_tasks_are_those_of_a_name_only(tmp_path):
    for name in ("arithmetic", "arithmetic_simple_agent"):
        path = shipped_tasks(name)
        assert path is not None
        assert path.parts[-2:] == ("arithmetic", "tasks.jsonl")
    assert shipped_tasks("nothing") is None
    (tmp_path / "tasks.jsonl").write_bytes(b"")
    assert shipped_tasks(str(tmp_path)) is None
    assert shipped_tasks("") is None


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("counter=http://127.0.0.1:9", "counter"),
        ("https://example.com/gym?", "remote"),
        ("http://127.0.0.1:9", "remote"),
    ],
)
def test_registry_finds_a_server_by_its_name_and_by_what_was_given(spec, name):
    """Rows of other sources name the server's agent."""
    registry = Registry((spec,))
    found = registry.find(spec)
    assert (found.name, found.environment.rescore) == (name, "recorded")
    assert registry.find(name) == found
    assert registry.find(f"{name}_simple_agent").environment is found.environment


def test_registry_takes_no_address_from_a_row():
    with pytest.raises(UnknownNameError):
        Registry().find("http://127.0.0.1:9")
    with pytest.raises(UnknownNameError):
        Registry().find("counter=http://127.0.0.1:9")


class First(Environment):
    """Has several options."""

    class Options(EnvironmentOptions):
        level: int = 1
        label: str = ""
        kinds: list[str] = []
        ratio: float | None = None


class Second(Environment):
    """Shares an option with the first one."""

    class Options(EnvironmentOptions):
        level: int = 1
        must: bool


class Third(Environment):
    """Has no options."""


REGISTRATIONS = [Registration("one", First, ""), Registration("two", Second, "")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"one": {}, "two": {}}),
        ({"label": "x"}, {"one": {"label": "x"}, "two": {}}),
        ({"one.level": "2", "two.level": "3"}, {"one": {"level": "2"}, "two": {"level": "3"}}),
        ({"two.wrong": "2"}, {"one": {}, "two": {"wrong": "2"}}),
    ],
)
def test_split_env_args_assigns_by_name_or_to_the_only_one_that_fits(given, expected):
    assert split_env_args(given, REGISTRATIONS) == expected


@pytest.mark.parametrize(
    ("key", "environments", "words"),
    [
        (
            "level",
            REGISTRATIONS,
            "--env-arg level: one and two have this option; write one.level=...",
        ),
        (
            "levl",
            REGISTRATIONS,
            "--env-arg levl: no environment of this run has it (options: one.level, one.label, "
            "one.kinds, one.ratio, two.level, two.must)",
        ),
        (
            "three.level",
            REGISTRATIONS[:1],
            "--env-arg three.level: no environment of this run has it",
        ),
        ("one.", REGISTRATIONS[:1], "--env-arg one.: no environment of this run has it"),
        (
            "level",
            [Registration("three", Third, "")],
            "no environment of this run has it (options: none)",
        ),
    ],
)
def test_split_env_args_says_why_an_option_fits_nowhere(key, environments, words):
    with pytest.raises(UsageError) as caught:
        split_env_args({key: "1"}, environments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"level": "2"}, {"level": 2}),
        ({"label": "plain words"}, {"label": "plain words"}),
        ({"label": "7"}, {"label": "7"}),
        ({"label": "true", "kinds": '["a"]'}, {"label": "true", "kinds": ["a"]}),
        ({"ratio": "null"}, {}),
        ({"ratio": "1"}, {"ratio": 1.0}),
        ({"label": "[" * 5_000}, {"label": "[" * 5_000}),
        ({"label": "half \udcff"}, {"label": "half \udcff"}),
    ],
)
def test_environment_options_types_each_by_itself(given, expected):
    """A value that looks like JSON stays text if its option is text, whatever the others are."""
    assert environment_options(First, "one", given, {}) == First.Options(**expected)


def test_environment_options_given_go_before_those_on_record():
    options = environment_options(First, "one", {"level": "3"}, {"level": 2, "label": "x"})
    assert options == First.Options(level=3, label="x")


@pytest.mark.parametrize(
    ("environment", "given", "recorded", "words"),
    [
        (First, {"level": "high"}, {}, "--env-arg level: is not a whole number"),
        (First, {"kinds": '["a", 1]'}, {}, "--env-arg kinds: must be a list"),
        (
            First,
            {"levl": "1"},
            {},
            "--env-arg levl: is unknown (options of environment x: level, label, kinds, ratio)",
        ),
        (First, {}, {"gone": 1}, "the option on record gone: is unknown"),
        (Third, {"a": "1"}, {}, "(options of environment x: none)"),
        (Second, {}, {}, "must: is missing"),
    ],
)
def test_environment_options_say_which_is_wrong(environment, given, recorded, words):
    with pytest.raises(UsageError) as caught:
        environment_options(environment, "x", given, recorded)
    assert words in str(caught.value)


@given(st.text())
def test_environment_options_take_any_text_as_text(text):
    assert environment_options(First, "one", {"label": text}, {}).label == text
