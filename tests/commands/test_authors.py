"""Tests of the mistakes an author of an environment can make, as the commands report them."""

from pathlib import Path

import pytest

from tests.builders import gym, lines_of, write_rows

WRONG = '''"""Returns something wrong if the row asks for it."""

from gymcli import Environment, Message, Score, Step, Task, Tool


def number():
    return 1


class Wrong(Environment[Task]):
    """Say done."""

    def pick(self, right, **wrong):
        return wrong.get(getattr(self.task, "does", ""), right)

    async def setup(self):
        user = Message(role="usr", content="hi")
        return self.pick([], none=None, dict=[{"role": "user", "content": "hi"}], role=[user])

    def tools(self):
        tool = Tool(number, description="A number.", parameters={"x": object()})
        return self.pick([], tool=[number], schema=[tool])

    async def step(self, message):
        step = await super().step(message)
        return self.pick(
            step,
            list=[],
            won=Step([], stop_reason="won"),
            text=Step("hi"),
            content=Step([Message(role="user", content=19)]),
            surrogate=Step([Message(role="user", content="half \\ud800")]),
            reward=Step([], reward="much"),
        )

    async def reply(self, rollout):
        return self.pick(None, five=5)

    async def final_state(self):
        return self.pick(None, state=object())

    async def oracle(self, rollout):
        said = Message(role="assistant", content="done")
        user = Message(role="user", content="done")
        calls = Message(role="assistant", tool_calls=[1])
        return self.pick(said, str="done", user=user, calls=calls)

    @classmethod
    async def verify(cls, rollout, context):
        wrong = {"float": 0.5, "answer": Score(1.0, answer=5), "nan": Score(float("nan"))}
        return wrong.get(rollout.task.get("does"), Score(1.0))
'''

PLACES = {
    "setup": ("none", "dict", "role"),
    "tools": ("tool", "schema"),
    "step": ("list", "won", "text", "content", "surrogate", "reward"),
    "reply": ("five",),
    "final_state": ("state",),
    "oracle": ("str", "user", "calls"),
    "verify": ("float", "answer", "nan"),
}
PHASES = {"setup": "setup", "tools": "setup", "verify": "verify"}

JUDGING = '''"""Looks up a key that does not exist."""

from gymcli import Environment, Message, Score, Task


def look(kept):
    return kept["jugde"]


class Judging(Environment[Task]):
    """Say done."""

    async def oracle(self, rollout):
        return Message(role="assistant", content="done")

    @classmethod
    async def verify(cls, rollout, context):
        if rollout.task_id != "sound":
            look({"judge": 1})
        return Score(1.0)
'''
FRAMES = ["judging.py:19 in Judging.verify", "judging.py:7 in look"]


@pytest.fixture
def folder(tmp_path, working_folder):
    Path("wrong.py").write_text(WRONG)
    Path("judging.py").write_text(JUDGING)
    return tmp_path


def write_deeds(*names):
    rows = [{"id": name, "prompt": f"{name}?", "does": name} for name in names]
    write_rows("t.jsonl", rows)


def collect(env, *options):
    command = ("collect", "t.jsonl", "--env", env, "--model", "oracle", "--out", "run")
    return gym(*command, "--min-coverage", "0", *options)


def line_of(source, method):
    lines = source.splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if f"def {method}(" in line]
    return number - lines[number - 2].strip().startswith("@")


def test_a_wrong_return_value_fails_its_own_attempt(folder):
    """The message names class, method, file and line, and the run stays readable."""
    method_of = {name: method for method, names in PLACES.items() for name in names}
    write_deeds("sound", *method_of)
    assert collect("wrong.py:Wrong").exit_code == 0
    failures = {
        failure["task_id"]: failure["error"] for failure in lines_of(Path("run/failures.jsonl"))
    }
    assert failures.keys() == method_of.keys()
    for name, error in failures.items():
        method = method_of[name]
        place = f"wrong.py:{line_of(WRONG, method)}"
        assert error["message"].startswith(f"Wrong.{method} returned "), error
        assert error["message"].endswith(f" ({place})"), error
        assert error["frames"] == [f"{place} in Wrong.{method}"]
        assert error["phase"] == PHASES.get(method, "environment")
    assert "5 (int), neither a text nor None" in failures["five"]["message"]
    assert "the stop reason 'won', not one of done, " in failures["won"]["message"]
    assert "Invalid enum value 'usr' - at `$.role`" in failures["role"]["message"]
    assert "Expected `str | null`, got `int` - at `$.answer`" in failures["answer"]["message"]

    for name in ("sound", *method_of):
        gym("show", "run", name, exit_code=0)
    assert "1 rescored" in gym("verify", "run", "--env", "wrong.py:Wrong").stdout
    gym("export", "run", "--to", "jsonl", "-o", "out.jsonl", exit_code=0)
    assert len(lines_of(Path("out.jsonl"))) == 1


@pytest.mark.parametrize("name", ["dict", "role", "five", "won", "content", "str", "float"])
def test_check_fails_where_a_method_returns_something_wrong(folder, name):
    write_deeds(name, f"{name} too")
    rows = Path("t.jsonl").read_text().replace(f'"does":"{name} too"', f'"does":"{name}"')
    Path("t.jsonl").write_text(rows)
    done = gym("check", "wrong.py:Wrong", "--tasks", "t.jsonl", exit_code=3)
    assert "oracle      FAILED   2 of 2 tasks cannot be played or scored: Wrong." in done.stdout
    assert f"\n{'':21}wrong.py:" in done.stdout


def test_an_author_sees_where_his_code_failed(folder):
    """The verifier runs in a worker process, which sends the traceback with its reply."""
    write_deeds("sound", "one", "two")
    done = collect("judging.py:Judging")
    assert [one["error"]["frames"] for one in lines_of(Path("run/failures.jsonl"))] == [
        FRAMES,
        FRAMES,
    ]
    told = ["2 attempts failed with VerifierError: KeyError: 'jugde'"]
    told += [f"  at {frame}" for frame in FRAMES]
    assert "\n".join(told) + "\n" in done.stderr
    shown = gym("show", "run", "one").stdout
    assert f"where         {FRAMES[0]}\n              {FRAMES[1]}\n" in shown
    checked = gym("check", "judging.py:Judging", "--tasks", "t.jsonl").stdout
    assert f"KeyError: 'jugde' [one, two]\n{'':21}{FRAMES[0]}\n{'':21}{FRAMES[1]}\n" in checked

    gym("verify", "run", "--env", "judging.py:Judging", "--out", "again", exit_code=0)
    assert "at judging" not in collect("judging.py:Judging", "--quiet").stderr


def test_a_secret_in_a_place_is_redacted(folder, monkeypatch):
    key = "sk-1234-abcd-5678-efgh"
    monkeypatch.setenv("GRADER_KEY", key)
    Path(key).mkdir()
    Path(key, "judging.py").write_text(JUDGING)
    write_deeds("one")
    collect(f"{key}/judging.py:Judging")
    [failure] = lines_of(Path("run/failures.jsonl"))
    assert failure["error"]["frames"][-1] == "[redacted]/judging.py:7 in look"


def test_an_environment_that_cannot_be_imported_is_named_with_its_line(folder):
    Path("broken.py").write_text(JUDGING + "\nlook({})\n")
    write_deeds("one")
    done = collect("broken.py:Judging")
    assert done.exit_code == 2
    assert "cannot be imported: KeyError: 'jugde' (broken.py:7 in look)" in done.stderr
    Path("broken.py").write_text(JUDGING.replace("async def verify", "async def verfiy"))
    done = gym("check", "broken.py:Judging", exit_code=2)
    assert "Judging.verfiy is never called; is it meant to be verify?" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("collect", "t\udcff.jsonl", "--env", "judging.py:Judging", "--model", "oracle"),
        ("export", "run\udcff", "--to", "csv", "-o", "out.csv"),
        ("collect", "arithmetic", "--model", "oracle", "--out", "run\udcff"),
        ("collect", "t.jsonl", "--env", "d\udcff/judging.py:Judging", "--model", "oracle"),
    ],
)
def test_a_path_that_is_not_utf_8_is_refused_in_one_line(folder, arguments):
    write_deeds("sound")
    Path("t\udcff.jsonl").write_bytes(Path("t.jsonl").read_bytes())
    assert collect("judging.py:Judging").exit_code == 0
    Path("run").rename("run\udcff")
    Path("d\udcff").mkdir()
    Path("d\udcff", "judging.py").write_text(JUDGING)
    done = gym(*arguments, exit_code=2)
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert r"\xff" in line
    assert "is not UTF-8" in line


def test_a_working_directory_that_is_not_utf_8_works_except_for_code_in_it(folder, monkeypatch):
    name = "d\udcff"
    Path(name).mkdir()
    monkeypatch.chdir(name)
    Path("judging.py").write_text(JUDGING)
    write_deeds("sound")
    gym("collect", "arithmetic", "--model", "oracle", "--limit", "2", exit_code=0)
    done = collect("judging.py:Judging")
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: judging.py:Judging: its path ")
    assert line.endswith(r"d\xff/judging.py is not UTF-8; rename the folder, or move the file")


CART = '''"""A shop."""

from __future__ import annotations

from gymcli import Environment, Message, Score, Task, tool


class Cart(Environment[Task]):
    """Fill a cart."""

    @tool
    def METHOD
        """Add an item."""

    async def oracle(self, rollout):
        return Message(role="assistant", content="done")

    @classmethod
    async def verify(cls, rollout, context):
        return Score(1.0)


class Later(Task):
    """A type that the class above names."""

    name: str
'''


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("add(self, *items: str):", "Cart.add has *items, but a model passes arguments by name"),
        ("add(self, item: Itme):", "Cart.add has the unknown name `Itme` in an annotation"),
        ("version(self):", "Cart.version hides the environment's own `version`"),
    ],
)
def test_a_tool_that_no_model_can_call_is_refused_by_every_command(folder, method, reason):
    Path("cart.py").write_text(CART.replace("METHOD", method))
    write_deeds("one")
    for command in (
        ("envs", "cart.py:Cart"),
        ("check", "cart.py"),
        ("collect", "t.jsonl", "--env", "cart.py", "--model", "oracle", "--out", "run"),
        ("data", "validate", "t.jsonl", "--env", "cart.py:Cart"),
    ):
        done = gym(*command)
        assert done.exit_code == 2, command
        [line] = done.stderr.splitlines()
        assert line.startswith("error: environment "), line
        assert reason in line
        assert line.endswith("(cart.py:11)"), line
        assert not Path("run").exists()


def test_a_tool_may_name_a_type_that_its_module_defines_later(folder):
    Path("cart.py").write_text(CART.replace("METHOD", "add(self, item: Later):"))
    gym("envs", "cart.py", exit_code=0)
