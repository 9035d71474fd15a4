"""Texts put into a prompt so that nothing in them can be taken for a verdict or for the prompt.

A judge that thinks aloud quotes what it judges. A candidate that writes a label, or an object in
the form of the verdict, would then speak for the judge: such forms are broken where the text
enters the prompt, so that a reader still knows what stood there and the parser finds nothing. One
that writes the prompt's own tags would end the place it was given and begin another: `render`
breaks those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = [
    "key_pattern",
    "label_pattern",
    "own_tags",
    "render",
    "tag_pattern",
    "without_keys",
    "without_labels",
    "without_tags",
]


_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TAG = re.compile(r"</?+([A-Za-z_][\w.:-]*+)(?:\s[^<>]*+|/)?+>")


def render(template: str, fields: Mapping[str, str]) -> str:
    """Put fields in the place of their `{name}`, once: braces in a field's text stay as they are.

    Every other brace of the template is itself, so that it can show JSON as it is written. The
    template's tags are broken wherever a field has them.

    Raises:
        TypeError: The template needs a field that is not given.

    """
    pattern = own_tags(template)

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in fields:
            given = ", ".join(fields) or "none"
            raise TypeError(f'the template needs the field "{name}"; given: {given}')
        return without_tags(fields[name], pattern)

    return _FIELD.sub(value, template)


def own_tags(template: str) -> re.Pattern[str]:
    """Give a pattern that finds the tags which a template has."""
    return tag_pattern(_TAG.findall(template))


def tag_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Give a pattern that finds tags of these names, in any case: `<name ...>` and `</name`."""
    written = "|".join(map(re.escape, sorted(set(names)))) or "(?!)"
    # A closing tag is one even where its bracket is left for the prompt to close.
    name = rf"(?:{written})(?![\w.:-])[^<>]*+"
    return re.compile(rf"<(\s*+/\s*+{name}|{name}(?=[<>]))(>?)", re.IGNORECASE)


def without_tags(text: str, pattern: re.Pattern[str]) -> str:
    """Make every tag of a text none by other brackets: `</answer>` becomes `(/answer)`."""
    return pattern.sub(lambda found: f"({found[1]}{')' if found[2] else ''}", text)


def label_pattern(labels: Iterable[str]) -> re.Pattern[str]:
    """Give a pattern that finds labels as they are written, the longest where several begin.

    Raises:
        ValueError: A label could not be broken, or would be again what it was.

    """
    longest_first = sorted(labels, key=len, reverse=True)
    for label in longest_first:
        if len(label) < 2 or label != label.strip():
            raise ValueError(
                f"the label {label!r} cannot be told from what stands in a prompt; give it two "
                "characters or more and no space around them, as in [[A]]"
            )
    return re.compile("|".join(map(re.escape, longest_first)))


def without_labels(text: str, pattern: re.Pattern[str]) -> str:
    """Break every label in a text by spaces: `[[A=B]]` becomes `[ [A=B] ]`."""
    # Again, since labels may overlap or end alike: INCORRECT holds CORRECT.
    while pattern.search(text):
        text = pattern.sub(_broken, text)
    return text


def _broken(found: re.Match[str]) -> str:
    label = found[0]
    first, middle, last = label[0], label[1:-1], label[-1]
    return f"{first} {middle}{last}" if last.isalnum() else f"{first} {middle} {last}"


def key_pattern(names: Iterable[str]) -> re.Pattern[str]:
    r"""Give a pattern that finds names as keys of a JSON object, escaped (`\u0041`) or not."""
    written = "|".join("".join(map(_in_json, name)) for name in names)
    return re.compile(rf'"({written})"(?=\s*:)')


def _in_json(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    escape = "".join(rf"\\u(?i:{units[i : i + 4]})" for i in range(0, len(units), 4))
    return rf"(?:\\?{re.escape(character)}|{escape})"


def without_keys(text: str, pattern: re.Pattern[str]) -> str:
    """Make a JSON object of a text none by other quotes: `"success":` becomes `'success':`."""
    return pattern.sub(r"'\1'", text)
