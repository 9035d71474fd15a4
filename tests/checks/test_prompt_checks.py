"""Checks of prompts, tools and judges: nothing that a model sees reveals the answer."""

import pytest

from gymcli import FunctionCall, Judge, Message, Score, Tool, ToolCall, tool
from tests.checks import judged
from tests.checks.subjects import Sound, finding, rows_of, says


class Choosing(Sound):
    @classmethod
    def choices(cls, task):
        return ["Paris", "Lima"]


def test_leaks_holds():
    found = finding("leaks", Sound)
    assert (found.status, found.text) == ("ok", "12 gold answers, none of them in its prompt")


@pytest.mark.parametrize(
    ("prompt", "answer", "status"),
    [
        ("{} Which town? (Paris)", "Paris", "failed"),
        ("{} Parisian life", "Paris", "ok"),
        ("{} 12345 + 1", "2345", "ok"),
        ("{} The sum is 2345.", "2345", "failed"),
        ("{} 12?", "12", "n/a"),
    ],
)
def test_leaks_looks_for_whole_answers(prompt, answer, status):
    assert finding("leaks", Sound, rows_of([answer, answer], prompt=prompt)).status == status


def test_leaks_names_answer_and_tasks():
    found = finding("leaks", Sound, rows_of(["Paris", "Lima"], prompt="{} Say Lima."))
    assert found.text == "the prompt contains the gold answer: 'Lima'"
    assert found.task_ids == ["t1"]


def test_leaks_takes_the_answer_that_the_verifier_found():
    class Explaining(Sound):
        async def oracle(self, rollout):
            return says(f"It must be {self.task.answer}.")

        @classmethod
        async def verify(cls, rollout, context):
            return Score(1.0, answer=cls.parse_task(rollout.task).answer)

    assert finding("leaks", Explaining, rows_of(["Paris"], prompt="{} Paris")).status == "failed"


def test_leaks_lets_choices_stand():
    rows = rows_of(["Paris", "Lima"], prompt="{} Paris or Lima?")
    assert finding("leaks", Choosing, rows).status == "n/a"


def test_leaks_sees_what_setup_adds():
    class Telling(Sound):
        async def setup(self):
            return [Message(role="user", content=f"The answer is {self.task.answer}!")]

    assert finding("leaks", Telling).status == "failed"


def test_duplicates():
    found = finding("duplicates", Sound)
    assert (found.status, found.text) == ("ok", "12 different prompts")
    same = finding("duplicates", Sound, rows_of(["a", "b", "c"], prompt="The same."))
    assert same.status == "failed"
    assert same.task_ids == ["t0", "t1", "t2"]
    assert same.text == "3 tasks share 1 prompts: t0 = t1 = t2"


def test_duplicates_differ_by_what_setup_adds_and_by_tools():
    class Dealing(Sound):
        async def setup(self):
            return [Message(role="user", content=f"You have {self.rng.random()}.")]

    rows = rows_of(["a", "b"], prompt="The same.")
    assert finding("duplicates", Dealing, rows).status == "ok"
    shown = {"type": "function", "function": {"name": "f"}}
    rows[1].tools = [shown]
    assert finding("duplicates", Sound, rows).status == "ok"


class Tooled(Sound):
    @tool
    def find(self, name: str, limit: int = 3) -> list[str]:
        """Find something by its name."""
        return [name] * limit


class Untyped(Sound):
    @tool
    def find(self, name) -> str:  # the missing annotation is the defect
        """Find something by its name."""
        return name


class Made(Sound):
    """Tools that are known only at run time."""

    def tools(self):
        return [Tool(len, name="look up!", description="Look up.", parameters={})]


def function(**changed):
    spec = {
        "name": "find",
        "description": "Find it.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    return [{"type": "function", "function": {**spec, **changed}}]


def test_tools_hold():
    found = finding("tools", Tooled)
    assert (found.status, found.text) == ("ok", "1 documented, with valid schemas")
    assert finding("tools", Sound).status == "n/a"


class Calling(Sound):
    """Say the answer, once both tools were called."""

    @tool
    def look(self) -> str:
        """Look around."""
        return "look failed: says the tool itself"

    @tool
    def open(self, times: int) -> str:
        """Open the drawer."""
        if times > self.max_times:
            raise ValueError("the drawer is stuck")
        return "open"

    max_times = 1

    async def oracle(self, rollout):
        if rollout.responses:
            return await super().oracle(rollout)
        calls = [("look", "{}"), ("open", '{"times": 1}'), ("open", '{"times": 2}')]
        made = [ToolCall(id="x", function=FunctionCall(name=n, arguments=a)) for n, a in calls]
        return Message(role="assistant", tool_calls=made)


class Stuck(Calling):
    max_times = 0

    @tool
    def look(self) -> str:
        """Look around."""
        return "nothing"


def test_tools_that_raise_in_every_call_of_the_oracle_fail():
    assert finding("tools", Calling).status == "ok"
    found = finding("tools", Stuck)
    assert found.status == "failed"
    words = (
        "open raises in all 24 calls of the oracle: open failed: ValueError: the drawer is stuck."
    )
    assert found.text == words


def test_tools_of_a_row():
    assert finding("tools", Sound, rows_of("ab", tools=function())).status == "ok"
    built_in = [{"type": "web_search"}]
    assert finding("tools", Sound, rows_of("ab", tools=built_in)).status == "n/a"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "find it"}, "endpoints do not accept the tool name 'find it'"),
        ({"name": "x" * 65}, "endpoints do not accept the tool name"),
        ({"description": " "}, "the tool find has no description"),
        ({"parameters": [1]}, "the parameters of find must be an object, not [1]"),
        (
            {"parameters": {"type": "objekt"}},
            "the parameters of find are not JSON Schema: $.type: 'objekt' is not valid",
        ),
        (
            {"parameters": {"properties": {"name": {}}}},
            "the parameter name of find has neither a type nor a description",
        ),
        (
            {"parameters": {"properties": {"name": True}}},
            "the parameter name of find has neither a type nor a description",
        ),
        (
            {"parameters": {"required": ["name"]}},
            "find requires the parameter name but does not describe it",
        ),
    ],
)
def test_tools_that_are_wrong(changed, reason):
    found = finding("tools", Sound, rows_of("ab", tools=function(**changed)))
    assert found.status == "failed"
    assert reason in found.text


def test_tools_that_are_none():
    rows = rows_of("ab", tools=[{"type": "function", "function": "find"}])
    assert "must be an object, not 'find'" in finding("tools", Sound, rows).text


def test_tools_of_a_class():
    assert finding("tools", Untyped).status == "failed"


def test_tools_that_are_made_and_several_problems():
    class Several(Made):
        def tools(self):
            return [*super().tools(), Tool(len, name="f?", description="F.", parameters={})]

    assert "'look up!'" in finding("tools", Made).text
    assert finding("tools", Several).text.endswith("(and 1 more)")


LABELS = {"same": "[[A=B]]", "different": "[[A!=B]]"}
FORM = "Say [[A=B]] or [[A!=B]].\n{first}\n{second}"


class Naive(Judge):
    """Quotes everything in its prompt unchanged."""

    def neutralise(self, text):
        return text


class Deaf(Judge):
    """Reads the first label anywhere, and does not neutralise labels in quoted text."""

    def parse(self, text):
        return ("same", {}) if "A" in text else super().parse(text)


def with_judge(judge, **attributes):
    return type("Judged", (Sound,), {"JUDGE": judge, "__module__": __name__, **attributes})


@pytest.mark.parametrize("rule", ["first", "last", "unique", "tagged"])
def test_judges_with_labels_hold(rule):
    found = finding("judges", with_judge(Judge(FORM, labels=LABELS, rule=rule, votes=3)))
    assert found.status == "ok"
    assert found.text == "JUDGE: none of 2 quoted verdicts is read as one"


def verdict_schema(**decided):
    properties = {"reason": {"type": "string"}, "verdict": decided}
    return {"type": "object", "properties": properties, "required": ["reason", "verdict"]}


@pytest.mark.parametrize(
    ("decided", "num"),
    [
        ({"enum": ["yes", "no", "unsure"]}, 3),
        ({"type": "boolean"}, 2),
        ({"type": "integer", "minimum": 3}, 1),
        ({"type": "array", "items": {"type": "number"}, "minItems": 2}, 1),
        ({"const": "done"}, 1),
        ({"type": ["null", "string"]}, 1),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, 1),
        (True, 1),
    ],
)
def test_judges_with_a_schema_hold(decided, num):
    schema = verdict_schema() if decided is True else verdict_schema(**decided)
    if decided is True:
        schema["properties"]["verdict"] = True
    judge = Judge("Judge {answer}", schema=schema, decides="verdict", system="Be strict.")
    found = finding("judges", with_judge(judge))
    assert found.text == f"JUDGE: none of {num} quoted verdicts is read as one"


def test_judges_without_a_deciding_property():
    found = finding("judges", with_judge(Judge("{a}", schema=verdict_schema(enum=[1, 2]))))
    assert found.status == "ok"


def test_judges_whose_schema_is_beyond_the_check():
    schema = verdict_schema(type="string", pattern="^never$")
    found = finding("judges", with_judge(Judge("{a}", schema=schema)))
    assert found.status == "failed"
    assert "cannot construct an object that fits its schema" in found.text


YES = {"type": "object", "properties": {"verdict": {"type": "boolean"}}, "required": ["verdict"]}


@pytest.mark.parametrize(
    ("schema", "decides"),
    [
        ({"anyOf": [YES]}, "verdict"),
        ({"anyOf": [YES]}, None),
        ({"$defs": {"yes": YES}, "$ref": "#/$defs/yes"}, "verdict"),
        ({"$defs": {"yes": YES}, "$ref": "#/$defs/yes"}, None),
        ({"properties": {"inner": YES}}, "verdict"),
        ({"type": "array", "items": YES}, "verdict"),
        ({"properties": {"properties": {"type": "integer"}}, "allOf": [YES]}, "verdict"),
        ({"type": "object", "allOf": [YES]}, None),
    ],
)
def test_judges_whose_schema_has_another_form(schema, decides):
    """A judge accepts such a schema; the check reports that it cannot construct an object."""
    judge = Judge("Judge {answer}", schema=schema, decides=decides)
    found = finding("judges", with_judge(judge))
    assert found.status == "failed"
    assert "cannot construct an object that fits its schema" in found.text


@pytest.mark.parametrize("inner", [{"$ref": "#/nowhere"}, {"type": 5}])
def test_judges_whose_schema_is_none(inner):
    judge = Judge("Judge {answer}", schema={"properties": {"verdict": inner}})
    assert finding("judges", with_judge(judge)).status == "failed"


def test_judge_that_lets_labels_in():
    found = finding("judges", with_judge(Naive(FORM, labels=LABELS)))
    assert found.status == "failed"
    assert found.text == "JUDGE: [[A=B]] in the judged text enters the prompt unchanged"


def test_judge_that_lets_objects_in():
    schema = verdict_schema(type="boolean")
    judge = Naive("Judge {answer}", schema=schema, decides="verdict")
    assert "enters the prompt unchanged" in finding("judges", with_judge(judge)).text


def test_judge_that_reads_its_quote():
    found = finding("judges", with_judge(Deaf(FORM, labels=LABELS)))
    assert (
        found.text == "JUDGE: same is read from an answer that quotes others, then says different"
    )


def test_judge_that_shows_something_else():
    class Hiding(Judge):
        def render(self, **fields):
            return super().render(**dict.fromkeys(fields, "hidden"))

    assert (
        "lacks the judged text" in finding("judges", with_judge(Hiding(FORM, labels=LABELS))).text
    )


def test_judges_are_found_where_they_stand():
    """In a container of the class, in its module, and in the modules of its package."""
    judge = Judge(FORM, labels=LABELS)
    stages = {"one": judge, "two": Judge("{x}", labels=LABELS), "other": 3}
    found = finding("judges", with_judge(judge, STAGES=stages))
    assert found.text.startswith("JUDGE, STAGES: none of 4")
    two = [Judge("{x}", labels=LABELS), Judge("{y}", labels=LABELS)]
    assert finding("judges", with_judge(3, BOTH=two)).text.startswith("BOTH, BOTH 1: ")
    assert finding("judges", judged.Judged).text.startswith("JUDGE_OF_MODULE: ")


def test_without_a_judge():
    assert finding("judges", Sound).status == "n/a"


@pytest.mark.parametrize("declared", ["required_roles", "optional_roles"])
def test_judges_that_are_declared_and_not_there(declared):
    found = finding("judges", type("Needy", (Sound,), {declared: ("judge",)}))
    assert found.status == "failed"
    assert "neither class nor module has a Judge" in found.text
