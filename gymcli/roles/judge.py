"""A judge: a prompt, the model that answers it, and how its words are read as a verdict.

Source: the judges of NVIDIA NeMo Gym's resources servers (equivalence_llm_judge, math_with_judge,
multichallenge, arena_judge and others, Apache-2.0), whose label rules, swapped second question
and JSON verdicts are written anew. A failed call is an error; a verdict that cannot be read is a
verdict without a label, never one of the labels by default.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from gymcli.environment import Model
from gymcli.gathering import gather_all
from gymcli.roles.objects import find_objects
from gymcli.roles.prompt import (
    key_pattern,
    label_pattern,
    own_tags,
    render,
    without_keys,
    without_labels,
    without_tags,
)
from gymcli.types import JSON, JSONObject, Message, canonical_json

if TYPE_CHECKING:
    import re

    from jsonschema import Draft202012Validator

__all__ = ["Judge", "Verdict"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a judge said."""

    label: str | None
    """None: the words could not be read as a verdict, or the votes are tied."""
    value: JSONObject = {}
    """The whole object, for judges with a schema."""
    text: str = ""
    """The judge's words: of the first vote that says `label`, else of the first vote."""
    votes: list[str | None]
    """Every vote's label, in order."""
    agreement: float = 1.0
    """The share of all votes that say `label`."""

    def record(self) -> JSONObject:
        """Give the verdict for `Score.details`; a label that could not be read is null."""
        found: JSONObject = {"label": self.label, "text": self.text}
        if self.value:
            found["value"] = self.value
        if len(self.votes) > 1:
            found |= {"votes": self.votes, "agreement": self.agreement}
        return found


@dataclass(frozen=True, eq=False)
class Judge:
    """A prompt for a model that judges, and the rule by which its words are read.

    It reads its answer by `labels` or by `schema`. Whatever stands in a field of the prompt
    cannot be taken for the verdict, even where the judge quotes it.
    """

    template: str
    """The prompt; each `{name}` is a field, all other braces are themselves."""
    _: KW_ONLY
    labels: Mapping[str, str] | None = None
    """The text of each label, of two characters or more, as the judge is told to write it."""
    rule: Literal["first", "last", "unique"] = "last"
    """Which label counts where several are found; `unique`: all must be the same."""
    schema: JSONObject | None = None
    """The last object that fits is the verdict; the model is asked to answer by it."""
    decides: str | None = None
    """The property of the object that is the label; without it, the whole object as JSON is."""
    system: str | None = None
    """The system message; it has no fields."""
    votes: int = 1
    """How often the model is asked; the label that most votes say wins, a tie is no label."""
    params: JSONObject | None = None
    """Sampling parameters, unless the user gave others for the role."""
    version: str = "1"
    """Raised whenever the prompt says something else in the same words; part of the cache key."""

    def __post_init__(self) -> None:
        """Refuse what could not be read, or not be kept apart from what is judged.

        Raises:
            ValueError: Labels, schema or the number of votes cannot be meant.

        """
        if (self.labels is None) == (self.schema is None):
            raise ValueError("a judge needs either labels or a schema")
        if self.votes < 1:
            raise ValueError(f"a judge needs at least one vote, not {self.votes}")
        if self.labels is not None:
            if not self.labels or len(set(self.labels.values())) < len(self.labels):
                raise ValueError("a judge's labels need texts that differ from one another")
            label_pattern(self.labels.values())
            if self.decides is not None:
                raise ValueError("`decides` names a property of a schema, and there is none")
        elif not self._names:
            raise ValueError("the judge's schema names no properties")
        elif self.decides is not None and self.decides not in self._names:
            raise ValueError(f'the judge\'s schema has no property "{self.decides}"')

    def render(self, **fields: str) -> list[Message]:
        """Give the prompt.

        Raises:
            TypeError: The template needs a field that is not given.

        """
        safe = {name: self.neutralise(text) for name, text in fields.items()}
        prompt = Message(role="user", content=render(self.template, safe))
        return [prompt] if self.system is None else [self._system_message(), prompt]

    def neutralise(self, text: str) -> str:
        """Break what could be read as a verdict, or as a tag of the prompt; every field is."""
        text = without_tags(text, self._tag_pattern)
        if self.labels is not None:
            return without_labels(text, self._label_pattern)
        return without_keys(text, self._key_pattern)

    def parse(self, text: str) -> tuple[str | None, JSONObject]:
        """Read the words of a judge: the label, and the object where there is a schema."""
        if self.labels is not None:
            return self._label_in(text, self.labels), {}
        for value in reversed(find_objects(text)):
            if self._fits(value):
                return self._label_of(value), value
        return None, {}

    async def ask(self, model: Model, /, **fields: str) -> Verdict:
        """Ask for a verdict, with all votes at once.

        Raises:
            RoleError: A call failed; the others have ended by then.
            TypeError: The template needs a field that is not given.

        """
        messages = self.render(**fields)
        answers = await gather_all([self._vote(model, messages, n) for n in range(self.votes)])
        texts = [answer.text for answer in answers]
        return self._verdict(texts)

    async def ask_all(self, model: Model, items: Sequence[Mapping[str, str]]) -> list[Verdict]:
        """Ask for many verdicts at once, as for the items of a rubric; gives them in order.

        Raises:
            RoleError: A call failed; the others have ended by then.
            TypeError: The template needs a field that is not given.

        """
        return await gather_all([self.ask(model, **fields) for fields in items])

    async def confirm(
        self, model: Model, label: str, /, *, swap: tuple[str, str], **fields: str
    ) -> list[Verdict]:
        """Ask, and where the verdict is `label`, ask again with two fields swapped.

        The label is confirmed where there are two verdicts and both say it. The prompt has to
        treat both fields alike, or the second question is another one.

        Raises:
            RoleError: A call failed.
            TypeError: The template, or the swap, needs a field that is not given.

        """
        first, second = swap
        if not {first, second} <= fields.keys():
            raise TypeError(f'the fields "{first}" and "{second}" are to be swapped; give both')
        verdict = await self.ask(model, **fields)
        if verdict.label != label:
            return [verdict]
        swapped = {**fields, first: fields[second], second: fields[first]}
        return [verdict, await self.ask(model, **swapped)]

    def _system_message(self) -> Message:
        return Message(role="system", content=self.system)

    async def _vote(self, model: Model, messages: list[Message], number: int) -> Message:
        return await model.complete(
            messages, schema=self.schema, params=self.params, cache=f"{self.version}/{number}"
        )

    def _verdict(self, texts: list[str]) -> Verdict:
        """Count the votes; only those that could be read decide."""
        readings = [self.parse(text) for text in texts]
        votes = [label for label, _ in readings]
        ranked = Counter(label for label in votes if label is not None).most_common(2)
        is_tied = len(ranked) == 2 and ranked[0][1] == ranked[1][1]
        label = ranked[0][0] if ranked and not is_tied else None
        agreement = votes.count(label) / len(votes)
        if label is None:
            return Verdict(label=None, text=texts[0], votes=votes, agreement=agreement)
        decisive = votes.index(label)
        _, value = readings[decisive]
        return Verdict(
            label=label, value=value, text=texts[decisive], votes=votes, agreement=agreement
        )

    def _label_in(self, text: str, labels: Mapping[str, str]) -> str | None:
        found = [match[0] for match in self._label_pattern.finditer(text)]
        if not found or (self.rule == "unique" and len(set(found)) > 1):
            return None
        said = found[-1] if self.rule == "last" else found[0]
        return next(name for name, label in labels.items() if label == said)

    def _fits(self, value: JSONObject) -> bool:
        """Say whether an object is a verdict: one that names nothing of the schema is none."""
        wanted = self._names if self.decides is None else {self.decides}
        if wanted.isdisjoint(value):
            return False
        try:
            return self._validator.is_valid(value)
        except RecursionError:  # a schema that refers to itself, and an object as deep as it lets
            return False

    def _label_of(self, value: JSONObject) -> str:
        decided: JSON = value if self.decides is None else value[self.decides]
        return decided if isinstance(decided, str) else canonical_json(decided).decode()

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(_property_names(self.schema))

    @functools.cached_property
    def _tag_pattern(self) -> re.Pattern[str]:
        return own_tags(self.template)

    @functools.cached_property
    def _label_pattern(self) -> re.Pattern[str]:
        return label_pattern((self.labels or {}).values())

    @functools.cached_property
    def _key_pattern(self) -> re.Pattern[str]:
        return key_pattern(sorted(self._names))

    @functools.cached_property
    def _validator(self) -> Draft202012Validator:
        import jsonschema  # late: heavy, and only a judge with a schema needs it

        assert self.schema is not None
        jsonschema.Draft202012Validator.check_schema(self.schema)
        return jsonschema.Draft202012Validator(self.schema)


def _property_names(schema: JSON) -> Iterator[str]:
    """Give the property names of a schema and of the schemas inside it."""
    if isinstance(schema, list):
        for item in schema:
            yield from _property_names(item)
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for item in schema.values():
            yield from _property_names(item)
