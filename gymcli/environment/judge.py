"""A judge: a prompt, and how a verdict is read from the model's answer.

Source: the judges of NVIDIA NeMo Gym's resources servers (equivalence_llm_judge, math_with_judge,
multichallenge, arena_judge and others, Apache-2.0), whose label rules, swapped second question
and JSON verdicts are rewritten here. A judge whose complete answer has no verdict is asked once
more, for the verdict alone. A failed call is an error, and so are answers without a readable
verdict: neither ever becomes a default label.
"""

from __future__ import annotations

import functools
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from gymcli.environment.contract import Cache, Model
from gymcli.environment.model_text import (
    comparable,
    find_objects,
    follow_up,
    key_pattern,
    label_pattern,
    own_tags,
    render,
    without_keys,
    without_labels,
    without_tags,
)
from gymcli.environment.time_limit import gather_all
from gymcli.errors import RoleError
from gymcli.types import JSON, JSONObject, Message, canonical_json, digest

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict of a judge."""

    label: str | None
    """The winning label; None: the votes are tied."""
    value: JSONObject = {}
    """The whole object, for judges with a schema."""
    text: str = ""
    """The judge's answer: that of the first vote for `label`, or of the first vote in a tie. If the
    judge was asked once more, both of its answers."""
    votes: list[str | None]
    """The label of every vote, in order."""
    agreement: float = 1.0
    """The share of votes for `label`."""

    def record(self) -> JSONObject:
        """Return the verdict for `Score.details`; the label of a tie is null."""
        details: JSONObject = {"label": self.label, "text": self.text}
        if self.value:
            details["value"] = self.value
        if len(self.votes) > 1:
            details |= {"votes": self.votes, "agreement": self.agreement}
        return details


_TAG_REQUEST = "\n\nEnd your reply with your verdict, once, on a line of its own, {form}"
_SECOND_REQUEST = (
    "Your reply has no verdict that can be read. Reply with your verdict alone, {form}"
)
_TAG_FORM = """\
in this form:
<{tag}>LABEL</{tag}>
Replace LABEL with one of these, exactly as written here: {labels}
"""

_LINE_START = re.compile(r"^(?:(?:[-+*>#]++|\d++[.)])\s++|[`~]{3,}+[\w+-]*+$|[-*_=]{3,}+$)++")
"""Markdown before the text of a line, or a line without text: a fence, a rule."""
_MARKS = re.compile(r"<[\s/\\]*+[\w-]++[\s\\]*+>|[\s_*~`\\\[\]]++")
_OUTER_MARKS = "(){}\"'“”\u2018\u2019«»„.,:;$"
_INTRODUCTION = re.compile(r"^(?:my|the)?(?:final)?(?:verdict|label)(?:is:?|:)")
_NEGATION = re.compile(
    r"(?<![a-z])(?:no|not|none|nor|neither|never|cannot|instead|rather|if|whether|unless)(?![a-z])"
    r"|n['\u2019]t(?![a-z])|\?|[a-z!-]$",
    re.IGNORECASE,
)
"""What keeps a sentence that a label ends from being a verdict, or the label from being a word."""
_ANY_TAG = "verdict-[0-9a-f]{8}"


class _Vote(NamedTuple):
    label: str
    value: JSONObject
    text: str


@dataclass(frozen=True, eq=False)
class Judge:
    """A prompt for a model that judges, and the rule by which its answer is read.

    It reads answers by `labels` or by `schema`. The text of a field is never read as the verdict,
    even if the judge quotes it. With `rule="tagged"`, neither are labels that the prompt mentions.

    A judge whose answer has no verdict is asked once more in the same conversation, for the verdict
    alone, unless the answer names several verdicts. An answer that is cut, filtered, refused or
    empty is a failed call, which is not asked about.
    """

    template: str
    """The prompt; each `{name}` is a field, all other braces are literal."""
    _: KW_ONLY
    labels: Mapping[str, str] | None = None
    """The text of each label, of two characters or more, as the judge is told to write it."""
    rule: Literal["first", "last", "unique", "tagged"] = "last"
    """The label that counts if several are found; `unique`: all must be the same. `tagged`: the
    prompt ends by asking for the label in a tag whose name the judged text cannot know. Labels in
    such tags must agree. Without any, the answer is read if it is a label and nothing else, or if
    its last line ends with the only label in it, without a negation or a question. The last line
    must not end a list of labels, and it must not be a quote: no field contains a label, and the
    prompt has no such line. Markdown, quotes, full stops and "Verdict:" around a label do not
    matter; in the tag, neither do case, blanks and brackets."""
    schema: JSONObject | None = None
    """The JSON Schema that the model is asked to follow. The objects of the answer that fit are the
    verdict, and all must agree."""
    decides: str | None = None
    """The property of the object that is the label; None: the whole object as JSON."""
    system: str | None = None
    """The system message; it has no fields."""
    votes: int = 1
    """The number of times that the model is asked; the most frequent label wins, a tie has none."""
    params: JSONObject | None = None
    """Sampling parameters; the user's own for the role override them."""
    version: str = "1"
    """Part of the cache key; raise it if the same prompt comes to mean something else."""

    def __post_init__(self) -> None:
        if (self.labels is None) == (self.schema is None):
            raise ValueError("a judge needs either labels or a schema")
        if self.votes < 1:
            raise ValueError(f"a judge needs at least one vote, not {self.votes}")
        if self.labels is not None:
            if not self.labels or len(set(self.labels.values())) < len(self.labels):
                raise ValueError("a judge's labels need texts that differ from one another")
            # Raises an error for labels that could not be broken in a judged text.
            label_pattern(self.labels.values())
            if self.decides is not None:
                raise ValueError(
                    "`decides` names a property of a schema, and the judge has no schema"
                )
        elif self.rule == "tagged":
            raise ValueError("`tagged` is for labels; a judge with a schema answers with an object")
        elif not self._names:
            raise ValueError("the judge's schema names no properties")
        elif self.decides is not None and self.decides not in self._names:
            raise ValueError(f'the judge\'s schema has no property "{self.decides}"')

    def render(self, **fields: str) -> list[Message]:
        """Return the prompt.

        Raises:
            TypeError: A field of the template is missing.
        """
        text = self._filled(fields)
        if self.rule == "tagged":
            text = text.rstrip() + _TAG_REQUEST.format(form=self._form(text))
        prompt = Message(role="user", content=text)
        if self.system is None:
            return [prompt]
        return [Message(role="system", content=self.system), prompt]

    def written(self, label: str, **fields: str) -> str:
        """Return a label as the judge is told to write it when these fields are judged.

        Raises:
            KeyError: There is no such label, or the judge has a schema.
        """
        text = (self.labels or {})[label]
        tag = self._tag(self._filled(fields))
        return f"<{tag}>{text}</{tag}>" if self.rule == "tagged" else text

    def neutralise(self, text: str) -> str:
        """Break whatever could be read as a verdict or a tag of the prompt, as in every field."""
        text = without_tags(text, own_tags(self.template))
        if self.labels is not None:
            return without_labels(text, self._label_pattern)
        return without_keys(text, key_pattern(sorted(self._names)))

    def parse(
        self, text: str, *, fields: Mapping[str, str] | None = None
    ) -> tuple[str | None, JSONObject]:
        """Read a judge's answer: the label, and the object if there is a schema.

        `fields` are those of the prompt. With `rule="tagged"` and without them, only an answer that
        is a label and nothing else can be read.
        """
        if self.rule == "tagged":
            return self._tagged_label(text, fields), {}
        if self.labels is not None:
            labels = self._labels_in(text)
            if not labels or (self.rule == "unique" and len(set(labels)) > 1):
                return None, {}
            return labels[-1 if self.rule == "last" else 0], {}
        fitting = self._fitting(text)
        decided = [value if self.decides is None else value[self.decides] for value in fitting]
        verdicts = {
            value if isinstance(value, str) else canonical_json(value).decode() for value in decided
        }
        return (verdicts.pop(), fitting[-1]) if len(verdicts) == 1 else (None, {})

    def names_several(self, text: str) -> bool:
        """Return whether an answer states several verdicts; its judge is not asked once more."""
        if self.labels is None:
            return bool(self._fitting(text))
        labels = self._labels_in(text)
        if self.rule == "tagged":
            last_line = "".join(_lines(text)[-1:])
            labels = [*self._labels_in_tags(text, _ANY_TAG)] or self._labels_in(last_line)
        return len(set(labels)) > 1

    async def ask(self, model: Model, /, **fields: str) -> Verdict:
        """Ask for a verdict, with all votes in parallel.

        Raises:
            RoleError: A call failed, or its answer has no readable verdict; all other calls have
                ended by then.
            TypeError: A field of the template is missing.
        """
        votes = [self._vote(model, fields, number) for number in range(self.votes)]
        return _verdict(await gather_all(votes))

    async def ask_all(self, model: Model, items: Sequence[Mapping[str, str]]) -> list[Verdict]:
        """Ask for many verdicts in parallel, such as the items of a rubric; return them in order.

        Errors are those of `ask`; all other calls have ended by then.
        """
        return await gather_all([self.ask(model, **fields) for fields in items])

    async def confirm(
        self, model: Model, label: str, /, *, swap: tuple[str, str], **fields: str
    ) -> list[Verdict]:
        """Ask, and if the verdict is `label`, ask again with two fields swapped.

        The label is confirmed if there are two verdicts and both have it. The prompt must treat
        both fields alike, or the second question is a different one.

        Raises:
            RoleError: A call failed, or its answer has no readable verdict.
            TypeError: A field of the template or the swap is missing.
        """
        first, second = swap
        if not {first, second} <= fields.keys():
            raise TypeError(f'the fields "{first}" and "{second}" are to be swapped; pass both')
        verdict = await self.ask(model, **fields)
        if verdict.label != label:
            return [verdict]
        # Judges tend to favour a position; Zheng et al. 2023 (arXiv 2306.05685) ask in both orders.
        swapped = {**fields, first: fields[second], second: fields[first]}
        return [verdict, await self.ask(model, **swapped)]

    async def _vote(self, model: Model, fields: Mapping[str, str], number: int) -> _Vote:
        # A subclass may override `parse` without the fields.
        is_tagged = self.rule == "tagged"
        parse = functools.partial(self.parse, fields=fields) if is_tagged else self.parse

        def is_read(answer: Message) -> bool:
            return parse(answer.text)[0] is not None

        def asks_again(answer: Message) -> bool:
            return bool(answer.text.strip()) and not self.names_several(answer.text)

        ask = functools.partial(model.complete, schema=self.schema, params=self.params)
        cache = functools.partial(Cache, f"{self.version}/{number}")
        messages = self.render(**fields)
        # An answer to ask about is stored, since the second one depends on it. Any other without a
        # verdict is not, so that a resume asks again.
        answer = await ask(messages, cache=cache(lambda new: is_read(new) or asks_again(new)))
        text = answer.text
        if not is_read(answer) and asks_again(answer):
            request = _SECOND_REQUEST.format(form=self._form(self._filled(fields)))
            answer = await ask(follow_up(messages, text, request), cache=cache(is_read))
            text = f"{text}\n\n{answer.text}"
        label, value = parse(answer.text)
        if label is None:
            end = " ".join(answer.text[-200:].split())
            raise RoleError(
                "the judge's answer has no readable verdict, or several that disagree; it "
                f"ends with: {end!r}",
                is_answered=True,
            )
        return _Vote(label, value, text)

    def _form(self, filled: str) -> str:
        """Return how the verdict is to be written, as the end of a request for it."""
        if self.labels is None:
            names = dict.fromkeys(_property_names(self.schema))
            return f"as a JSON object with these properties: {', '.join(names)}"
        labels = ", ".join(self.labels.values())
        if self.rule == "tagged":
            return _TAG_FORM.format(tag=self._tag(filled), labels=labels)
        return f"which is one of these, exactly as written here: {labels}"

    def _filled(self, fields: Mapping[str, str]) -> str:
        # A judge that thinks aloud quotes what it judges, so no field may contain a verdict.
        safe = {name: self.neutralise(text) for name, text in fields.items()}
        return render(self.template, safe)

    def _tag(self, filled: str) -> str:
        """Name the tag by a hash of the prompt, which no text inside the prompt can predict."""
        return f"verdict-{digest([self.version, self.system, filled])[:8]}"

    def _tagged_label(self, text: str, fields: Mapping[str, str] | None) -> str | None:
        lines = _lines(text)
        label = self._label_alone(lines[0]) if len(lines) == 1 else None
        if label is not None or fields is None:
            return label
        filled = self._filled(fields)
        if labels := set(self._labels_in_tags(text, self._tag(filled))):
            return labels.pop() if len(labels) == 1 else None
        previous, last = ["", "", *lines][-2:]
        if last in (*_lines(filled), *map(str.strip, filled.splitlines())):
            return None
        # A judge may quote a field, and correct the spelling of a label in it.
        texts = [comparable(field) for field in fields.values()]
        if any(comparable(label) in field for _, label in self._items for field in texts):
            return None
        return self._label_at_end(previous, last)

    def _labels_in_tags(self, text: str, tag: str) -> Iterator[str]:
        for after_tag in re.split(rf"<\s*+{tag}\s*+>", text, flags=re.IGNORECASE)[1:]:
            content, closing, _ = after_tag.partition("</")
            lines = _lines(content)[: None if closing else 1]
            # Only the judge can write here, so that any spelling is its verdict.
            if (label := self._label_alone(" ".join(lines), in_any_spelling=True)) is not None:
                yield label

    def _label_alone(self, text: str, *, in_any_spelling: bool = False) -> str | None:
        core = _core(text)
        labels = {name: label for name, label in self._items if _core(label) == core}
        names = [name for name, label in labels.items() if label in text]
        names = names or [*labels] if in_any_spelling and core else names
        return names[0] if len(names) == 1 else None

    def _label_at_end(self, previous: str, line: str) -> str | None:
        names = set(self._labels_in(line))
        *before, after = self._label_pattern.split(line)
        if len(names) != 1 or _core(after) or _NEGATION.search(" ".join(before)):
            return None
        # A line before that begins or ends with another label makes this the end of a list.
        parts = self._label_pattern.split(previous.strip("*_`\"'"))
        is_list = "" in (parts[0], parts[-1]) and not names.issuperset(self._labels_in(previous))
        return None if is_list else names.pop()

    def _labels_in(self, text: str) -> list[str]:
        names = {label: name for name, label in self._items}
        return [names[match[0]] for match in self._label_pattern.finditer(text)]

    def _fitting(self, text: str) -> list[JSONObject]:
        return [value for value in find_objects(text) if self._fits(value)]

    def _fits(self, value: JSONObject) -> bool:
        keys = self._names if self.decides is None else {self.decides}
        if keys.isdisjoint(value):  # an object without any of the schema's keys
            return False
        try:
            return self._validator.is_valid(value)
        except RecursionError:  # a recursive schema and a deeply nested object
            return False

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(_property_names(self.schema))

    @property
    def _items(self) -> Iterable[tuple[str, str]]:
        return (self.labels or {}).items()

    @functools.cached_property
    def _label_pattern(self) -> re.Pattern[str]:
        return label_pattern((self.labels or {}).values())

    @functools.cached_property
    def _validator(self) -> Draft202012Validator:
        import jsonschema  # late: heavy, and only a judge with a schema needs it

        assert self.schema is not None
        jsonschema.Draft202012Validator.check_schema(self.schema)
        return jsonschema.Draft202012Validator(self.schema)


def _lines(text: str) -> list[str]:
    """Return the lines of a text, with wrapped sentences joined, and without blank ones."""
    unwrapped = re.sub(r"(?<=[^\s`~.:!?])\n[ \t]*+(?=[a-z])", " ", text)
    return [*filter(None, (_LINE_START.sub("", line.strip()) for line in unwrapped.splitlines()))]


def _core(text: str) -> str:
    """Return a label without case, blanks, brackets, Markdown, other tags, and marks around it."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKC", html.unescape(text)).casefold())
    return _INTRODUCTION.sub("", plain.strip(_OUTER_MARKS)).strip(_OUTER_MARKS)


def _verdict(votes: list[_Vote]) -> Verdict:
    labels = [vote.label for vote in votes]
    ranked = Counter(labels).most_common(2)
    is_tied = len(ranked) == 2 and ranked[0][1] == ranked[1][1]
    label = None if is_tied else ranked[0][0]
    decisive = votes[0 if label is None else labels.index(label)]
    return Verdict(
        label=label,
        value={} if label is None else decisive.value,
        text=decisive.text,
        votes=[*labels],
        agreement=0.0 if label is None else labels.count(label) / len(labels),
    )


def _property_names(schema: JSON) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _property_names(item)
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for item in schema.values():
            yield from _property_names(item)


class StandIn:
    """A scripted model for a role, for trying an environment without any endpoint.

    Args:
        answer: Returns the text of the answer to a conversation.
        is_scalar: The texts are numbers, like those of a scalar reward model.
    """

    def __init__(self, answer: Callable[[list[Message]], str], *, is_scalar: bool = False) -> None:
        self.is_scalar = is_scalar
        self._answer = answer

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        """Answer a conversation with the text that the function returns."""
        return Message(role="assistant", content=self._answer(messages))
