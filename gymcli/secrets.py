"""Takes secrets out of what is written or shown, by their value.

A secret is a key in use (of an endpoint, a header, a query, a proxy), and the value of an
environment variable that looks like one by its name and its value. A copy that a program encoded
is found where the encoding is JSON's, Python's or that of an address, and so is its beginning where
a message was cut; one in base64, say, is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from os.path import commonprefix
from typing import AnyStr, TypeAlias
from urllib.parse import quote, quote_plus, unquote, urlsplit

__all__ = [
    "MIN_CHARACTERS",
    "NOTHING_SECRET",
    "REDACTED",
    "Scrubber",
    "credentials",
    "environment_secrets",
    "is_secret_name",
    "scrubber_of",
]

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

REDACTED = "[redacted]"
"""What stands in the place of a secret."""

MIN_CHARACTERS = 8
"""A shorter value is looked for nowhere: it would be found in texts that have nothing of it."""

_MIN_PART = 16
"""Characters of the beginning of a secret that are taken for it: messages are cut somewhere."""
_CUT = "\u2026"
_CUT_BYTES = _CUT.encode()
"""How a message that was cut ends; before it, `MIN_CHARACTERS` of a secret are taken for it."""

_MIN_LINE_CHARACTERS = 16
"""A line of a value of several lines, such as a private key, is a secret of its own from here."""

_SECRET_WORDS = frozenset(
    ("authorization", "bearer", "jwt", "pass", "pat", "sas", "sig", "signature")
)
_SECRET_ENDS = (
    *("key", "token", "secret", "password", "passwd", "passphrase", "pwd", "credential"),
    *("cred", "auth", "cookie"),
)
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")

_PLAIN = re.compile(
    r"[A-Z]?[^\W\dA-Z_]{1,24}|[A-Z]{1,24}"  # a word, `true` and `none` among them
    r"|[\d\s.,:;+/TZ_-]+"  # a number, a date, a version
    r"|\d[\d.]*[eE][+-]?\d+"
    r"|(?:[a-z]+-)*\d{4}-\d{2}-\d{2}(?:-[a-z]+)*"  # a version, as of an API
    r"|(?:~|\.{1,2})?/(?:[a-z]+|[A-Z][a-z]+)(?:/.*)?"  # a path; base64 rarely begins so
    r"|(?:~|\.{1,2})/.*"
    r"|[A-Za-z]:\\.*"
    r"|[a-z][a-z0-9+.-]*://[^?#]*"  # an address; its password is looked at apart
    r"|[a-z]+/[a-z0-9.+-]+(?:;.*)?",  # a media type
    re.DOTALL,
)
_SAME_IN_ALL_ENCODINGS = re.compile(r"[A-Za-z0-9_.~-]+")


def is_secret_name(name: str) -> bool:
    """Say whether a name (of a variable, a header, a query's key) is one that secrets go by."""
    words = [word.lower() for word in _BETWEEN_WORDS.split(name)]
    return any(
        word in _SECRET_WORDS or word.removesuffix("s").endswith(_SECRET_ENDS) for word in words
    )


def credentials(named: Iterable[tuple[str, str]]) -> list[str]:
    """Give the secrets among headers or a query: all but plain values under names that say little.

    `Authorization: Bearer KEY` gives the whole and the key; `api-version: 2024-02-01` nothing.
    """
    return [
        part
        for name, value in named
        if is_secret_name(name) or not _PLAIN.fullmatch(value)
        for part in _parts(value)
    ]


def environment_secrets(environ: Mapping[str, str]) -> list[str]:
    """Give the secrets among environment variables.

    These are values under a name that says so (a word of it ends in KEY, TOKEN, SECRET, PASSWORD,
    CREDENTIALS, AUTH, COOKIE or the like), unless they are a single word, a number, a date, a path
    or an address; and the password of an address under any name (HTTPS_PROXY, DATABASE_URL).
    """
    found: list[str] = []
    for name, value in environ.items():
        found += _passwords(value)
        if is_secret_name(name) and not _PLAIN.fullmatch(value):
            found += [part for part in _parts(value) if not _PLAIN.fullmatch(part)]
    return found


def scrubber_of(in_use: Iterable[str], environ: Mapping[str, str]) -> Scrubber:
    """Give what takes out the keys in use and the secrets of the environment variables."""
    found = (*in_use, *environment_secrets(environ))
    return Scrubber(secret for secret in found if len(secret) >= MIN_CHARACTERS)


class Scrubber:
    """Takes certain values out of texts and of lines of JSON; showing it shows none of them."""

    __slots__ = ("_encoded", "_secrets", "_shown", "_stems")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if secret)
        shown = {form for secret in self._secrets for form in _forms(secret)}
        encoded = {_escaped(form) for form in shown}
        self._shown = tuple(_longest_first(shown))
        self._encoded = tuple(
            form.encode("utf-8", "surrogatepass") for form in _longest_first(encoded)
        )
        self._stems = tuple({form[:_MIN_PART] for form in self._encoded})

    def __repr__(self) -> str:
        """Say how many there are."""
        return f"<Scrubber of {len(self._secrets)} secrets>"

    def __bool__(self) -> bool:
        """Say whether there is anything to look for."""
        return bool(self._secrets)

    def also(self, secrets: Iterable[str]) -> Scrubber:
        """Give one that takes out more; those shorter than `MIN_CHARACTERS` are left out."""
        more = {secret for secret in secrets if len(secret) >= MIN_CHARACTERS}
        return self if more <= self._secrets else Scrubber(self._secrets | more)

    def holds_secret(self, text: str) -> bool:
        """Say whether a secret, or the larger part of one, stands in a text."""
        return self.text(text) is not text

    def text(self, text: str) -> str:
        """Give a text without the secrets."""
        for form in self._shown:
            if form[:MIN_CHARACTERS] in text:
                text = _without(text, form, REDACTED, _CUT)
        return text

    def line(self, data: bytes) -> bytes:
        """Give encoded JSON without the secrets in its texts and keys; it stays JSON.

        A number stays as it is, also where its digits are those of a secret.
        """
        for stem in self._stems:
            if stem in data:
                return self._scrubbed(data)
        return self._scrubbed(data) if _CUT_BYTES in data else data

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Give the variables that hold no secret, for a process that needs none."""
        hidden = self.also(environment_secrets(environ))
        return {name: value for name, value in environ.items() if not hidden.holds_secret(value)}

    def _scrubbed(self, data: bytes) -> bytes:
        import msgspec  # late: heavy, and few lines hold a secret

        found = data
        for form in self._encoded:
            found = _without(found, form, REDACTED.encode(), _CUT_BYTES)
        if found is data:
            return data
        try:
            msgspec.json.decode(found)
        except (msgspec.MsgspecError, ValueError):  # it was found outside of a text, or cut one
            return msgspec.json.encode(self._value(msgspec.json.decode(data)))
        return found

    def _value(self, value: JSON) -> JSON:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._value(item) for key, item in value.items()}
        return value


def _without(text: AnyStr, form: AnyStr, mark: AnyStr, cut: AnyStr) -> AnyStr:
    """Replace a secret in a text, also one whose end is missing; the same text where none is."""
    stem = form[:MIN_CHARACTERS]
    start, end = text.find(stem), 0
    pieces: list[AnyStr] = []
    while start >= 0:
        length = len(commonprefix([form, text[start : start + len(form)]]))  # noqa: RUF071  # no paths
        is_whole = length == len(form) or length >= _MIN_PART
        if is_whole or text.startswith(cut, start + length):
            pieces += (text[end:start], mark)
            end = start + length
            start = text.find(stem, end)
        else:
            start = text.find(stem, start + 1)
    pieces.append(text[end:])
    return text[:0].join(pieces) if end else text


def _parts(value: str) -> Iterator[str]:
    """Give what of a value is a secret: the whole, what follows a scheme, and its long lines."""
    value = value.strip()
    yield value
    lines = value.splitlines()
    if len(lines) > 1:
        stripped = (line.strip() for line in lines)
        # Not the head and the end of a key, which all keys have.
        yield from (
            line
            for line in stripped
            if len(line) >= _MIN_LINE_CHARACTERS and not line.startswith("-----")
        )
    elif " " in value:
        yield value.rpartition(" ")[2]


def _passwords(value: str) -> Iterator[str]:
    if "://" not in value or "@" not in value:
        return
    try:
        password = urlsplit(value).password
    except ValueError:  # brackets that are no address
        return
    if password:
        yield from {password, unquote(password)}


def _forms(secret: str) -> set[str]:
    """Give the ways in which a secret may be written in a text."""
    if _SAME_IN_ALL_ENCODINGS.fullmatch(secret):
        return {secret}
    whole = secret.encode("utf-8", "surrogatepass")
    in_address = {quote(whole, safe=""), quote(whole), quote_plus(whole)}
    return {
        secret,
        _escaped(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        *in_address,
        *(re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in in_address),
    }


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _longest_first(forms: Iterable[str]) -> list[str]:
    """Sort forms: where one holds another, the longer must be replaced before it."""
    return sorted(forms, key=lambda form: (-len(form), form))


NOTHING_SECRET = Scrubber()
"""Leaves everything as it is."""
