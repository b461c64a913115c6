"""Keys for upstreams: their origins, their grants to sources, and the masker for all of them.

`Secrets` looks names up in given values, then in a dotenv file, then in the environment. Of the
environment it reads only granted names; it reads no file that it was not given. `AllSecrets` joins
the secrets of several sources in one `Masker`. The source decides where a key may be sent.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from callpact.errors import InvalidConfig, UsageError
from callpact.secrets.masker import Masker

MAX_SECRETS_BYTES = 1_000_000
"""Bytes that a file of secrets may have."""
EVERY_KEY = "*"
"""Grants a source every name of the environment."""

Standing = Literal["granted", "ungranted", "withheld", "unset"]
"""The state of a name: granted; set but not granted; a token of one of our doors; not set."""

_LINE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.]*)[ \t]*=[ \t]*(.*)")
_QUOTED = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")[ \t]*(?:#.*)?""")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Secrets:
    """Secrets by name: those given, before those of a dotenv file, before the environment.

    Of the environment only the names in `keys` are read; `*` reads all. Names in `withheld`, and
    their values, are masked and never returned. With `only_keys` the names of the file must be in
    `keys`, too. An empty value counts as not set. No repr, str, format, copy or pickle shows a
    value. Values of fewer than 8 characters are not masked: they occur in too many other words.

    Raises:
        InvalidConfig: the file cannot be read, with the number of the line.
        UsageError: a value that is not text.
    """

    __slots__ = (
        *("_environ", "_keys", "_known", "_learned", "_masker", "_only_keys", "_withheld"),
        "warnings",
    )

    def __init__(
        self,
        given: Mapping[str, str] | None = None,
        file: Path | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        keys: Iterable[str] = (),
        withheld: Iterable[str] = (),
        only_keys: bool = False,
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
        self._learned: dict[str, str] = {}
        """Values of the environment that were looked up."""
        self._environ: Mapping[str, str] = {} if environ is None else environ
        self._keys = frozenset(keys)
        self._withheld = frozenset(withheld)
        self._only_keys = only_keys
        self._masker = (0, Masker())
        self.warnings = tuple(warnings)

    def restricted(
        self,
        environ: Mapping[str, str],
        *,
        keys: Iterable[str],
        withheld: Iterable[str],
        only_keys: bool,
    ) -> Secrets:
        """Return the same values for one source, with these names of the environment added."""
        asked = (frozenset(keys), frozenset(withheld), only_keys)
        if environ is self._environ and asked == (self._keys, self._withheld, self._only_keys):
            return self
        made = Secrets(
            self._known, None, environ, keys=asked[0], withheld=asked[1], only_keys=only_keys
        )
        made.warnings = self.warnings
        return made

    def get(self, name: str) -> str | None:
        """Return the value; None if the name is not set or not granted."""
        return self._value(name) if self.standing(name) == "granted" else None

    def standing(self, name: str) -> Standing:
        """Return the state of a name: granted, or the reason why it has no value."""
        value = self._value(name)
        if value is None:
            return "unset"
        if name in self._withheld or any(value == self._value(each) for each in self._withheld):
            standing = "withheld"
        elif name in self._keys or EVERY_KEY in self._keys:
            standing = "granted"
        else:
            is_given = name in self._known and not self._only_keys
            return "granted" if is_given else "ungranted"
        if name not in self._known:
            self._learned[name] = value
        return standing

    def _value(self, name: str) -> str | None:
        return self._known.get(name) or self._environ.get(name) or None

    def mask(self, text: str) -> str:
        """Return the text without any secret that is long enough, however it is encoded."""
        return self.masker().mask(text)

    def mask_data(self, value: Any) -> Any:
        """Return JSON data without any secret: in strings, in keys, in bytes."""
        return self.masker().mask_data(value)

    def masker(self) -> Masker:
        """Return the masker of all known secrets: the same object until more become known."""
        number = len(self._known) + len(self._learned)
        if self._masker[0] != number:
            # A copy: another thread may add a secret at the same time.
            values = (*self._known.values(), *tuple(self._learned.values()))
            self._masker = (len(values), Masker(values))
        return self._masker[1]

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted({*self._known, *self._learned}))})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


class AllSecrets:
    """The secrets of several sources under one masker, as one secret may contain another."""

    def __init__(self) -> None:
        self._secrets: tuple[Secrets, ...] = ()
        self._seen: tuple[Masker, ...] = ()
        self._joined = Masker()

    def hide(self, secrets: Secrets) -> None:
        """Mask these from now on, including those that are added to them later."""
        if not any(secrets is known for known in self._secrets):
            self._secrets = (*self._secrets, secrets)

    def masker(self) -> Masker:
        """Return the masker of all secrets: the same object until more become known."""
        seen = tuple([each.masker() for each in self._secrets])
        if seen != self._seen:
            self._joined = Masker.joined(seen)
            self._seen = seen
        return self._joined


def key_name(entry: str) -> str:
    """Return the name in an entry of `keys`, which may bind it to a host: `SHOP_KEY@api.example.com`."""
    return entry.partition("@")[0]


def read_dotenv(path: Path, warnings: list[str]) -> dict[str, str]:
    """Read the values of a dotenv file: `NAME=value`, quotes, `export`, comments; nothing is expanded.

    Raises:
        InvalidConfig: with the number of the line, never with its content.
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
