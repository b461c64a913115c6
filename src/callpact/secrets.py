"""Keys for upstreams: where they come from, and that none of them shows.

`Secrets` looks names up in what was given, then in a dotenv file, then in the environment, and
masks every value it knows in texts and JSON data. It reads no file and no environment unasked.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self, cast
from urllib.parse import quote, quote_plus

from callpact.errors import InvalidConfig, UsageError

MAX_SECRETS_BYTES = 1_000_000
"""Size of a file of secrets."""
MAX_MASKED_DEPTH = 128
"""Levels of JSON data in which secrets are looked for; what lies deeper is masked as a whole."""
MIN_MASKED = 8
"""Characters from which on a value is masked: shorter ones stand in too many other words."""
MASK = "***"
_MAX_ENCODED = 10_000

_LINE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.]*)[ \t]*=[ \t]*(.*)")
_QUOTED = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")[ \t]*(?:#.*)?""")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Secrets:
    """Secrets by name: those given, before those of a dotenv file, before the environment.

    A value that is empty counts as not set. Of the environment only what was asked for is known,
    and masked. No repr, str, format, copy or pickle shows a value. Values of fewer characters than
    `shortest` are not masked: they stand in too many other words.

    Raises:
        InvalidConfig: the file cannot be read, with the number of the line.
        UsageError: a value that is not text.
    """

    __slots__ = ("_environ", "_forms", "_known", "_shortest", "warnings")

    def __init__(
        self,
        given: Mapping[str, str] | None = None,
        file: Path | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        shortest: int = MIN_MASKED,
    ) -> None:
        warnings: list[str] = []
        found = read_dotenv(file, warnings) if file is not None else {}
        values: Mapping[str, Any] = given or {}
        for name, value in values.items():
            if not isinstance(value, str):
                raise UsageError(f"the secret '{name}' must be text, got {type(value).__name__}")
            if value:
                found[name] = value
        self._known = found
        self._environ = environ or {}
        self._shortest = shortest
        self._forms: tuple[str, ...] | None = None
        self.warnings = tuple(warnings)

    def get(self, name: str) -> str | None:
        """The value, or None where none is set."""
        value = self._known.get(name) or self._environ.get(name) or None
        if value and name not in self._known:
            self._known[name] = value
            self._forms = None
        return value

    def mask(self, text: str) -> str:
        """The text without any secret that is long enough, however it is encoded."""
        for form in self.forms():
            if form in text:
                text = text.replace(form, MASK)
        return text

    def mask_data(self, value: Any) -> Any:
        """JSON data without any secret: in strings, in keys, in bytes."""
        return self._masked(value, MAX_MASKED_DEPTH) if self.forms() else value

    def _masked(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, bytes):
            for form in self.forms():
                value = value.replace(form.encode("utf-8", "surrogatepass"), MASK.encode())
            return value
        if isinstance(value, Mapping | list | tuple):
            if not depth:
                return MASK
            if isinstance(value, Mapping):
                pairs = cast("Mapping[Any, Any]", value).items()
                return {self._masked_key(k): self._masked(v, depth - 1) for k, v in pairs}
            return [self._masked(item, depth - 1) for item in cast("list[Any]", value)]
        return value

    def _masked_key(self, key: Any) -> Any:
        return self.mask(key) if isinstance(key, str) else key

    def forms(self) -> tuple[str, ...]:
        """Every text that must not show, the longest first."""
        if self._forms is None:
            # A copy: another thread may learn of a secret meanwhile.
            known = tuple(self._known.values())
            long = (value for value in known if len(value) >= self._shortest)
            forms = {form for value in long for form in _forms(value)}
            # The longest first: a secret may stand within another.
            self._forms = tuple(sorted(forms, key=len, reverse=True))
        return self._forms

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self._known))})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


def _forms(value: str) -> Iterator[str]:
    """A value as it may stand in a text: as it is, in JSON, its pointers, Python, URLs, base64."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield repr(data)[2:-1]
    yield value.replace("~", "~0").replace("/", "~1")
    # In base64 so few characters stand in other words, and so many would take long to write.
    if not MIN_MASKED <= len(value) <= _MAX_ENCODED:
        return
    for safe in ("", "/", "!*'()", ":/?#[]@!$&'()*+,;="):
        for written in (quote(data, safe), quote_plus(data, safe)):
            yield written
            yield re.sub("%..", lambda match: match[0].lower(), written)
    for whole in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        yield whole.decode()
    # In base64 a value begins at one of three places within a group (`user:value` of Basic): what
    # is left of it once its neighbours are cut off is the same everywhere.
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + data).rstrip(b"=").decode()
        end = len(encoded) if (shift + len(data)) % 3 == 0 else len(encoded) - 1
        part = encoded[(0, 2, 3)[shift] : end]
        yield part
        yield part.replace("+", "-").replace("/", "_")


def read_dotenv(path: Path, warnings: list[str]) -> dict[str, str]:
    """The values of a dotenv file: `NAME=value`, quotes, `export`, comments; nothing is expanded.

    Raises:
        InvalidConfig: with the number of the line, never with what stands there.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(_read(path, warnings).split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise InvalidConfig(f"{path}: line {number}: expected NAME=value")
        name, written = match.groups()
        if name in found:
            warnings.append(f"{path}: line {number}: {name} is set again")
        value = _value(written)
        if value is None:
            raise InvalidConfig(
                f"{path}: line {number}: the quotes of {name} do not end, or more follows them"
            )
        found[name] = value
    return {name: value for name, value in found.items() if value}


def _value(written: str) -> str | None:
    if written[:1] not in {"'", '"'}:
        return re.split(r"(?:^|[ \t])#", written, maxsplit=1)[0].rstrip()
    match = _QUOTED.fullmatch(written)
    if match is None:
        return None
    if match[1] is not None:
        return match[1]
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), match[2])


def _read(path: Path, warnings: list[str]) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_SECRETS_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > MAX_SECRETS_BYTES:
        raise InvalidConfig(f"{path}: larger than {MAX_SECRETS_BYTES:,} bytes")
    if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
        warnings.append(
            f"{path}: others on this machine may read it (mode {mode & 0o777:04o}); "
            "chmod 600 is meant for secrets"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(f"{path}: line {line}: not UTF-8") from None
