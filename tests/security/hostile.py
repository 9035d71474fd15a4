"""Texts and arguments that a hostile model may write because they are expensive to read."""

import functools

_SIZE = 100_000


def _of(text):
    return (text * (_SIZE // len(text) + 1))[:_SIZE]


def _xml_bomb():
    entities = "".join(
        f'<!ENTITY e{n} "{"".join(f"&e{n - 1};" for _ in range(10))}">' for n in range(1, 10)
    )
    return f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e0 "x">{entities}]><r>&e9;</r>'


def _yaml_bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines)


@functools.cache
def texts():
    """Return texts by what is wrong with them."""
    return {
        "nothing": "",
        "spaces": _of(" "),
        "lines": _of("\n"),
        "tabs and lines": _of(" \t\n"),
        "one letter": _of("a"),
        "words": _of("a "),
        "sentences": _of("A b. "),
        "full stops": _of("."),
        "digits": _of("9"),
        "boxed digits": "\\boxed{" + _of("9") + "}",
        "open boxes": _of("\\boxed{"),
        "box of boxes": _of("\\boxed{") + _of("}"),
        "answers": _of("Answer: A or B and "),
        "answer with emphasis": _of("**answer**:**"),
        "quotes": _of('"'),
        "escaped quotes": _of('\\"'),
        "backslashes": _of("\\"),
        "braces": _of("{"),
        "objects": _of('{"a":'),
        "arrays": _of("["),
        "closed arrays": "[" * 100_000 + "]" * 100_000,
        "fences": _of("```"),
        "sql fences": _of("```sql "),
        "stars": _of("*"),
        "bullets": _of("\n* "),
        "titles": _of("<<"),
        "tags": _of("<a"),
        "closing tags": _of("</think>"),
        "actions": _of("<action> "),
        "dates": _of("1:00 am - "),
        "thousands": _of("1,"),
        "final answers": _of("Final Answer: ["),
        "powers": "\\boxed{9^{9^{9^{9^{9}}}}}",
        "power of arithmetic": "9**9**9**9",
        "factorials": "\\boxed{" + "9" * 20 + "!" * 20 + "}",
        "parentheses": "(" * 50_000 + "1" + ")" * 50_000,
        "large exponent": "Answer: 1e999999999",
        "not a number": "Answer: nan inf -inf 1e400",
        "xml bomb": _xml_bomb(),
        "yaml bomb": _yaml_bomb(),
        "yaml code": "!!python/object/apply:os.system ['touch owned']",
        "csv": _of("a,b\n"),
        "csv of quotes": 'a,b\n"' + _of(",x"),
        "toml": _of("a.b.") + "c = 1",
        "number of JSON": '{"a": ' + _of("9") + "}",
        "format": _of("{0.__class__.__mro__}") + "%s%n",
        "control characters": _of("\x00\x1b[2J\x07\x9b"),
        "bidi and joined": _of("\u202e\u2066a\u0301\u200d\ufeff"),
        "other scripts": _of("\u0661\uff11\u00b2\u216b"),
        "half a pair": "half a pair \ufffd",  # as it arrives
        "sql": "```sql\nWITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) "
        "SELECT count(*) FROM a\n```",
        "sql that writes": "```sql\nATTACH DATABASE 'owned' AS o; CREATE TABLE o.t(x)\n```",
    }


NAMES = (
    "verify",
    "setup",
    "__init__",
    "__class__",
    "_private",
    "tools",
    "roles",
    "options",
    "task",
    "close",
    "../../etc/passwd",
    "a/b",
    "..",
    "",
    "\0",
    "-rf",
    "con",
    "x" * 10_000,
)
"""Names of tools that no environment has."""


@functools.cache
def arguments():
    """Return arguments of tool calls by what is wrong with them."""
    return {
        "nothing": "",
        "no JSON": _of("{"),
        "deep arrays": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
        "deep objects": '{"a":' * 50_000 + "1" + "}" * 50_000,
        "number of digits": '{"a":' + "9" * _SIZE + "}",
        "exponent": '{"a":1e999999999}',
        "not a number": '{"a":NaN}',
        "encoded twice": '"{\\"a\\":1}"',
        "keys": "{" + ",".join(f'"k{n}":{n}' for n in range(20_000)) + "}",
        "the same key": "{" + ",".join('"a":1' for _ in range(20_000)) + "}",
        "dunders": '{"__class__":"x","__init__":{},"self":1,"cls":2}',
    }


@functools.cache
def values():
    """Return values for an argument with a correct name."""
    return (
        '"' + "a" * 100_000 + '"',
        "9" * 4_000,
        "1e400",
        '"../../etc/passwd"',
        "[[[[]]]]",
        "null",
    )
