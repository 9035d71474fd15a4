"""Prompt templates: the fields of a raw row become messages."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import UsageError
from gymcli.tasks.task_row import PromptTemplate
from gymcli.types import Message


def read(tmp_path, text):
    path = tmp_path / "prompt.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return PromptTemplate.read(path)


def test_messages_fill_user_and_system(tmp_path):
    template = read(
        tmp_path, 'system: "You know {topic}."\nuser: |\n  {question}\n  Box {{{x}}}.\n'
    )
    fields = {"topic": "birds", "question": "Can it fly?", "x": 3}
    assert template.messages(fields) == [
        Message(role="system", content="You know birds."),
        Message(role="user", content="Can it fly?\nBox {3}.\n"),
    ]


def test_messages_without_a_system_text_are_one_user_message(tmp_path):
    for text in ('user: "{a}"', 'user: "{a}"\nsystem: null'):
        assert read(tmp_path, text).messages({"a": "Hi"}) == [Message(role="user", content="Hi")]


def test_messages_name_the_field_that_a_row_lacks(tmp_path):
    template = read(tmp_path, 'user: "{question}"')
    with pytest.raises(ValueError, match=r'"question" is missing .* the row has: answer, text'):
        template.messages({"text": "x", "answer": 1})
    with pytest.raises(ValueError, match="the row has: none"):
        template.messages({})


@given(st.text(), st.text())
def test_messages_give_doubled_braces_and_values_back_as_they_are(literal, value):
    """Braces in a row's field are plain text."""
    user = literal.replace("{", "{{").replace("}", "}}") + "{field}"
    (message,) = PromptTemplate(user).messages({"field": value})
    assert message.content == literal + value


def test_hash_tells_templates_apart():
    hashes = {
        PromptTemplate(*texts).hash for texts in [("a",), ("b",), ("a", ""), ("a", "b"), ("b", "a")]
    }
    assert len(hashes) == 5
    assert PromptTemplate("a").hash == PromptTemplate("a").hash


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'is a YAML mapping with the text "user"'),
        ("- user", 'is a YAML mapping with the text "user"'),
        ("system: a", 'is a YAML mapping with the text "user"'),
        ("user: 3", 'is a YAML mapping with the text "user"'),
        ("user: a\nsystem: 3", '"system" must be text'),
        ("user: a\nassistant: b", 'unknown key "assistant"'),
        ("user: a\n3: b", 'unknown key "3"'),
        ("user: [", "is not YAML"),
        ("user: 2001-13-45", "is not YAML"),
        ("[" * 1_000, "is not YAML"),
        ("user: a".encode("utf-16"), "is UTF-16 text"),
        ("user: !!python/object:os.system {}", "is not YAML"),
        ("user: 'a {'", "write literal braces doubled: {{ and }}"),
        ("user: 'a } b'", "write literal braces doubled: {{ and }}"),
        ("user: '\\frac{1}{2}'", "{1} is not the name of a field"),
        ("user: '{}'", "{} is not the name of a field"),
        ("user: 'a'\nsystem: '{a.b}'", "{a.b} is not the name of a field"),
        ("user: '{a[0]}'", "{a[0]} is not the name of a field"),
        ("user: '{a!r}'", "{a!r} is not the name of a field"),
        ("user: '{a:>10}'", "{a:>10} is not the name of a field"),
        ("user: '{a:{b.__class__}}'", "{a:{b.__class__}} is not the name of a field"),
        ("user: 'Give {\"answer\": 1}'", '{"answer": 1} is not the name of a field'),
    ],
)
def test_read_refuses_what_is_no_template_in_one_line(tmp_path, text, words):
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'prompt.yaml'}: ")
    assert "\n" not in str(caught.value)


def test_read_names_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="nothing: cannot be read: No such file"):
        PromptTemplate.read(tmp_path / "nothing")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        PromptTemplate.read(tmp_path)
    with pytest.raises(UsageError, match=r"prompt\.yaml:3: is not UTF-8 text: save the "):
        read(tmp_path, b"user: a\n\n\xff")


@given(st.text())
def test_a_template_that_passes_the_check_can_be_filled(tmp_path_factory, text):
    """A template that is valid when it is read renders every row."""
    template = PromptTemplate(text)
    try:
        template.check(tmp_path_factory.getbasetemp())
    except UsageError:
        return
    names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    (message,) = template.messages({name: {} for name in names})
    assert isinstance(message.content, str)
