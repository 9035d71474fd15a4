"""Judges that cannot be spoken for, and those that can."""

import pytest

from gymcli import Judge, RoleError
from gymcli.errors import VerifierError
from tests.checking import judged
from tests.checks.subjects import Sound, finding

LABELS = {"same": "[[A=B]]", "different": "[[A!=B]]"}
FORM = "Say [[A=B]] or [[A!=B]].\n{first}\n{second}"


class Naive(Judge):
    """Lets everything into its prompt as it is."""

    def neutralise(self, text):
        return text


class Deaf(Judge):
    """Reads the first label wherever it stands, and breaks none where it is quoted."""

    def parse(self, text):
        return ("same", {}) if "A" in text else super().parse(text)


def with_judge(judge, **attributes):
    return type("Judged", (Sound,), {"JUDGE": judge, "__module__": __name__, **attributes})


@pytest.mark.parametrize("rule", ["first", "last", "unique", "tagged"])
def test_judges_with_labels_hold(rule):
    found = finding("judges", with_judge(Judge(FORM, labels=LABELS, rule=rule, votes=3)))
    assert found.status == "ok"
    assert found.text == "JUDGE: no quote of 2 verdicts is taken for one"


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
    assert found.text == f"JUDGE: no quote of {num} verdicts is taken for one"


def test_judges_without_a_deciding_property():
    found = finding("judges", with_judge(Judge("{a}", schema=verdict_schema(enum=[1, 2]))))
    assert found.status == "ok"


def test_judges_whose_schema_is_beyond_the_check():
    schema = verdict_schema(type="string", pattern="^never$")
    found = finding("judges", with_judge(Judge("{a}", schema=schema)))
    assert found.status == "failed"
    assert "cannot make up an object that fits its schema" in found.text


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
    """A judge takes it; that the check cannot is a finding, not a mistake of the check."""
    judge = Judge("Judge {answer}", schema=schema, decides=decides)
    found = finding("judges", with_judge(judge))
    assert found.status == "failed"
    assert "cannot make up an object that fits its schema" in found.text


@pytest.mark.parametrize("inner", [{"$ref": "#/nowhere"}, {"type": 5}])
def test_judges_whose_schema_is_none(inner):
    judge = Judge("Judge {answer}", schema={"properties": {"verdict": inner}})
    with pytest.raises(VerifierError):
        finding("judges", with_judge(judge))


def test_judge_that_lets_labels_in():
    found = finding("judges", with_judge(Naive(FORM, labels=LABELS)))
    assert found.status == "failed"
    assert found.text == "JUDGE: [[A=B]] in what is judged enters the prompt as it is"


def test_judge_that_lets_objects_in():
    schema = verdict_schema(type="boolean")
    judge = Naive("Judge {answer}", schema=schema, decides="verdict")
    assert "enters the prompt as it is" in finding("judges", with_judge(judge)).text


def test_judge_that_reads_its_quote():
    found = finding("judges", with_judge(Deaf(FORM, labels=LABELS)))
    assert found.text == "JUDGE: same is read where it quotes and then says different"


def test_judge_that_shows_something_else():
    class Hiding(Judge):
        def render(self, **fields):
            return super().render(**dict.fromkeys(fields, "hidden"))

    with pytest.raises(RoleError, match="does not have what is judged"):
        finding("judges", with_judge(Hiding(FORM, labels=LABELS)))


def test_judges_are_found_where_they_stand():
    """In a table of the class, in its module and in the modules of its package."""
    judge = Judge(FORM, labels=LABELS)
    stages = {"one": judge, "two": Judge("{x}", labels=LABELS), "other": 3}
    found = finding("judges", with_judge(judge, STAGES=stages))
    assert found.text.startswith("JUDGE, STAGES: no quote of 4")
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
