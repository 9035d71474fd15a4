"""Removes secrets from text that is written or shown, by searching for their values.

A secret is a key in use (of an endpoint, a header, a query, a proxy) and, in error messages only,
the value of an environment variable whose name and value look like those of a secret. Copies
escaped for JSON, Python or a URL are found, and so is the beginning of a secret where a message was
cut; a copy in base64, for example, is not. Plain words are never searched for: any text has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from os.path import commonprefix
from typing import AnyStr, TypeAlias
from urllib.parse import quote, quote_plus, unquote, urlsplit

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

REDACTED = "[redacted]"
"""Replaces a secret."""

MIN_CHARACTERS = 8
"""Shorter values are never searched for: they occur in texts that hold no secret."""

_MIN_PART = 16
"""A prefix of this many characters and half the secret is redacted too, since messages are cut.

Less than half may be common to all secrets of a kind, such as JWTs and private keys.
"""
_CUT = "\u2026"
"""Ends a message that was cut; `MIN_CHARACTERS` of a secret before it are redacted."""

_REDACTED_BYTES, _CUT_BYTES = REDACTED.encode(), _CUT.encode()

_KEYS = ("OPENAI_API_KEY", "HF_TOKEN")
"""Variables whose values gymcli or the Hugging Face Hub library sends."""
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")

_SECRET_WORDS = frozenset(("authorization", "bearer", "jwt", "pass", "pat", "sas", "sig"))
_SECRET_ENDS = (
    *("key", "token", "secret", "password", "passwd", "passphrase", "pwd", "credential"),
    *("cred", "auth", "cookie", "signature"),
)
_OTHER_WORDS = frozenset(("donkey", "hotkey", "monkey", "turkey"))
_LAST_WORDS = frozenset(
    ("domain", "file", "format", "host", "method", "mode", "name", "path", "type", "user")
)
"""A name with one of these as its last word belongs to a secret, but is not one: `token_type`."""
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")
_SCHEMES = frozenset(("apikey", "basic", "bearer", "token"))

_WORD = r"(?:[A-Z]?[^\W\dA-Z_]{1,24}|[A-Z]{1,15})"
# Four words joined by hyphens are a passphrase, and some kinds of keys begin like words.
_WORDS = rf"(?!(?:sk|hf|gh[a-z])[_-]){_WORD}(?:(?:[_.]{_WORD})*|(?:-{_WORD}){{0,2}})"
_IS_WORDS = re.compile(_WORDS)
_IS_PLAIN = re.compile(
    rf"{_WORDS}(?::\d+)?"  # words, `true` and `none` among them; a host and its port
    r"|[\d\s.,:;+/TZ_-]+"  # a number, a date, a version
    r"|\d[\d.]*[eE][+-]?\d+"
    r"|(?:[a-z]+-)*\d{4}-\d{2}-\d{2}(?:-[a-z]+)*"  # a version, as of an API
    r"|(?:~|\.{1,2})?/(?:[a-z]+|[A-Z][a-z]+)(?:/.*)?"  # a path; base64 rarely begins like this
    r"|(?:~|\.{1,2})/.*"
    r"|[A-Za-z]:\\.*"
    r"|[a-z][a-z0-9+.-]*://[^?#]*"  # a URL; its password is checked separately
    r"|[a-z]+/[a-z0-9.+-]+(?:;.*)?",  # a media type
    re.DOTALL,
)
_SAME_IN_ALL_ENCODINGS = re.compile(r"[A-Za-z0-9_.~-]+")
_REDACTED_KEY = re.compile(re.escape(REDACTED).encode() + rb'[^"\\]*":')


def is_secret_name(name: str) -> bool:
    """Return whether a name (of a variable, a header or a query parameter) names a secret."""
    words = [word.lower() for word in _BETWEEN_WORDS.split(name)]
    return words[-1] not in _LAST_WORDS and any(
        word in _SECRET_WORDS or word.removesuffix("s").endswith(_SECRET_ENDS)
        for word in words
        if word.removesuffix("s") not in _OTHER_WORDS
    )


def credentials(named: Iterable[tuple[str, str]]) -> list[str]:
    """Return the secrets among headers or a query.

    For `Authorization: Bearer KEY` they are the whole value and the key. Under a name that does not
    name a secret they are the parts that are not plain: the key of `X-Extra: team KEY`, nothing of
    `version: 2024-02-01`.
    """
    secrets: list[str] = []
    for name, value in named:
        if is_secret_name(name):
            secrets += _parts(value)
        elif not _IS_PLAIN.fullmatch(value):
            secrets += (part for part in value.split() if not _IS_PLAIN.fullmatch(part))
    return secrets


def passwords(address: str) -> list[str]:
    """Return the forms of a URL's password, if it has one: raw, decoded, and `user:password@`.

    The last form is a secret even if the password is a plain word.
    """
    if "://" not in address or "@" not in address:
        return []
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets that do not enclose an IPv6 address
        return []
    password = parts.password
    if not password:
        return []
    return list(dict.fromkeys((password, unquote(password), f"{parts.username}:{password}@")))


def environment_keys(environ: Mapping[str, str]) -> list[str]:
    """Return the values of OPENAI_API_KEY and HF_TOKEN, and the passwords of proxies."""
    keys = [environ.get(name, "").strip() for name in _KEYS]
    for name in _PROXIES:
        keys += passwords(environ.get(name, "")) + passwords(environ.get(name.lower(), ""))
    return keys


def environment_secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the secrets among environment variables, unless they are plain.

    Secrets are values under the name of a secret, and passwords in URLs under any name
    (HTTPS_PROXY, DATABASE_URL). Words, numbers, dates, paths and URLs are plain.
    """
    secrets: list[str] = []
    for name, value in environ.items():
        secrets += passwords(value)
        if is_secret_name(name) and not _IS_PLAIN.fullmatch(value):
            secrets += _parts(value)
    return [secret for secret in secrets if not _IS_PLAIN.fullmatch(secret)]


def scrubber_of(in_use: Iterable[str], environ: Mapping[str, str]) -> Scrubber:
    """Return a scrubber of these keys in use and of the keys in environment variables."""
    return NOTHING_SECRET.also((*in_use, *environment_keys(environ)))


class Scrubber:
    """Removes given values from text and from lines of JSON; its repr shows none of them."""

    __slots__ = ("_encoded", "_forms", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if secret)
        forms = {form for secret in self._secrets for form in _forms(secret)}
        encoded = {_escaped(form).encode("utf-8", "surrogatepass") for form in forms}
        # If one secret contains another, the longer must be replaced first.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._encoded = sorted(encoded, key=lambda form: (-len(form), form))

    def __repr__(self) -> str:
        return f"<Scrubber of {len(self._secrets)} secrets>"

    def also(self, secrets: Iterable[str]) -> Scrubber:
        """Return a scrubber of these secrets too, except for short values and plain words."""
        more = {
            secret
            for secret in secrets
            if len(secret) >= MIN_CHARACTERS and not _IS_WORDS.fullmatch(secret)
        }
        return self if more <= self._secrets else Scrubber(self._secrets | more)

    def text(self, text: str) -> str:
        """Return a text without the secrets; the same object if it holds none."""
        for form in self._forms:
            if form[:MIN_CHARACTERS] in text:
                text = _without(text, form, REDACTED, _CUT)
        return text

    def line(self, data: bytes) -> bytes:
        """Return encoded JSON without the secrets in its strings and keys; the result is JSON too.

        Numbers are unchanged. Data without a secret is returned as the same object.
        """
        clean = data
        for form in self._encoded:
            # Most lines hold no secret, and one search for its beginning is fast.
            if form[:MIN_CHARACTERS] in clean:
                clean = _without(clean, form, _REDACTED_BYTES, _CUT_BYTES)
        if clean is data:
            return data
        import msgspec  # late: heavy, and few lines hold a secret

        try:
            msgspec.json.decode(clean)
            # Two such keys may have become one and the same, and one of their values would be lost.
            is_sound = len(_REDACTED_KEY.findall(clean)) <= 1
        except (msgspec.MsgspecError, ValueError):  # the match was outside a string, or cut one
            is_sound = False
        return clean if is_sound else msgspec.json.encode(self._value(msgspec.json.decode(data)))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that are plain or hold no secret, for a process without secrets."""
        hidden = self.also(environment_secrets(environ))
        return {
            name: value
            for name, value in environ.items()
            if not environment_secrets({name: value})
            and (_IS_PLAIN.fullmatch(value) or hidden.text(value) is value)
        }

    def _value(self, value: JSON) -> JSON:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            scrubbed: dict[str, JSON] = {}
            for key, item in value.items():
                clean_key = self.text(key)
                # Two keys that differ only in a secret must stay two keys.
                if clean_key in scrubbed:
                    clean_key = f"{clean_key} {len(scrubbed)}"
                scrubbed[clean_key] = self._value(item)
            return scrubbed
        return value


def _without(text: AnyStr, form: AnyStr, mark: AnyStr, cut: AnyStr) -> AnyStr:
    """Replace a secret in a text, even if its end is missing."""
    stem = form[:MIN_CHARACTERS]
    start, end = text.find(stem), 0
    pieces: list[AnyStr] = []
    while start >= 0:
        length = len(commonprefix([form, text[start : start + len(form)]]))  # noqa: RUF071  # no paths
        # A few common characters prove nothing, except where a message was cut after them.
        is_whole = length == len(form) or length >= max(_MIN_PART, len(form) // 2)
        if is_whole or text.startswith(cut, start + length):
            pieces += (text[end:start], mark)
            end = start + length
            start = text.find(stem, end)
        else:
            start = text.find(stem, start + 1)
    pieces.append(text[end:])
    return text[:0].join(pieces) if end else text


def _parts(value: str) -> Iterator[str]:
    """Yield the secrets of a value: the whole, the part after a scheme, and its long lines."""
    value = value.strip()
    yield value
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        # Every line of a private key, for example, except the first and last, which all keys share.
        yield from (line for line in lines if len(line) >= 16 and not line.startswith("-----"))
        return
    scheme, _, credential = value.partition(" ")
    if credential and scheme.lower() in _SCHEMES:
        yield credential.strip()


def _forms(secret: str) -> set[str]:
    """Return the forms in which a secret may appear in a text."""
    if _SAME_IN_ALL_ENCODINGS.fullmatch(secret):
        return {secret}
    encoded = secret.encode("utf-8", "surrogatepass")
    in_address = {quote(encoded, safe=""), quote(encoded), quote_plus(encoded)}
    return {
        secret,
        _escaped(secret),
        json.dumps(secret)[1:-1],  # as Python writes it: with escapes for all but ASCII
        repr(secret)[1:-1],
        *in_address,
        # RFC 3986 allows the hex digits of %2F in lower case too.
        *(re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in in_address),
    }


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


NOTHING_SECRET = Scrubber()
"""Changes nothing."""
