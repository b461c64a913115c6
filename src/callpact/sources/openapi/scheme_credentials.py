"""Credentials of a source by the names of the document's security schemes, as settings give them.

`security = {api_key = "${SHOP_KEY}"}`, or a table for each scheme: `value`; `username` and
`password`; `client_id`, `client_secret`, `token_url`, `scopes` and `client_auth`. Only `${NAME}`
becomes a key; nothing is read or sent here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, cast

from callpact.errors import InvalidConfig
from callpact.net.oauth_token import ClientAuth
from callpact.schema import is_array, is_object

_KEY = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_TEXTS = frozenset(
    {"value", "username", "password", "client_id", "client_secret", "token_url", "audience"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The credential of one security scheme; texts may hold `${NAME}` for a granted key."""

    value: str | None = None
    """An API key, a token, or `user:password` for Basic."""
    username: str | None = None
    password: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    token_url: str | None = None
    """The token endpoint, where the document names another or none."""
    scopes: tuple[str, ...] | None = None
    """The scopes to ask for; None for those that the operation declares."""
    audience: str | None = None
    client_auth: ClientAuth = "basic"

    def __repr__(self) -> str:
        given = (each.name for each in fields(self) if getattr(self, each.name) is not None)
        return f"Credential({', '.join(given)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys in its texts."""
        return key_names(each for name in _TEXTS if (each := getattr(self, name)) is not None)


def key_names(texts: Iterable[str]) -> tuple[str, ...]:
    """The names of the keys in texts, sorted."""
    return tuple(sorted({name for text in texts for name in _KEY.findall(text)}))


def with_key_values(text: str, value: Callable[[str], str]) -> str:
    """A text with the value of each key in place of its `${NAME}`."""
    return _KEY.sub(lambda found: value(found[1]), text)


def read_credentials(table: Mapping[str, Any], where: str = "security") -> dict[str, Credential]:
    """Read the `security` of a source.

    Raises:
        InvalidConfig: with the key, what was expected and what came; never with a value.
    """
    return {scheme: _credential(given, f"{where}.{scheme}") for scheme, given in table.items()}


def unused_credentials(
    credentials: Mapping[str, Credential], schemes: Iterable[str]
) -> Iterator[str]:
    """A message for each credential of a scheme that no operation names."""
    known = sorted(set(schemes))
    for name in credentials:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; it names {', '.join(known)}"
            yield f"security.{name}: no operation names this scheme{hint if known else ''}"


def _credential(given: Any, where: str) -> Credential:
    if isinstance(given, str):
        return Credential(value=given)
    if isinstance(given, Credential):
        return given
    if not is_object(given):
        raise InvalidConfig(
            f'{where}: expected a text, as in "${{SHOP_KEY}}", or a table with value, username and '
            f"password, or client_id and client_secret; got {type(given).__name__}"
        )
    read: dict[str, Any] = {}
    for key, value in given.items():
        if key in _TEXTS:
            if not isinstance(value, str) or not value:
                raise InvalidConfig(f"{where}.{key}: expected a text, got {type(value).__name__}")
            read[key] = value
        elif key == "scopes":
            read[key] = _scopes(value, where)
        elif key == "client_auth":
            if value not in {"basic", "post"}:
                raise InvalidConfig(f"{where}.client_auth: expected 'basic' or 'post'")
            read[key] = value
        else:
            known = ", ".join(sorted({*_TEXTS, "scopes", "client_auth"}))
            raise InvalidConfig(f"{where}: '{key}' is not a setting; expected one of {known}")
    for one, other in (("password", "username"), ("client_secret", "client_id")):
        if one in read and other not in read:
            raise InvalidConfig(f"{where}: '{one}' needs '{other}' beside it")
    return Credential(**read)


def _scopes(value: Any, where: str) -> tuple[str, ...]:
    if not is_array(value) or not all(isinstance(each, str) and each for each in value):
        raise InvalidConfig(f"{where}.scopes: expected a list of texts")
    return tuple(cast("list[str]", value))
