"""Masking of records: secrets by value, by place in a schema, and by header.

`Hiding` masks places (`writeOnly`, `format: password`); `Mask` masks values and headers and encodes
JSON. Values that are not JSON are recorded by their repr, bounded in size.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, cast

import orjson
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from callpact.audit.record import MAX_RECORDED_TEXT
from callpact.schema import is_json, is_object
from callpact.schema.issues.secrecy import SecretPlaces
from callpact.schema.json_text import json_text
from callpact.secrets.headers import mentions_secret_header, within_text, without_carried
from callpact.secrets.keys import AllSecrets, Secrets
from callpact.secrets.masker import MASK, Masker
from callpact.tool import Tool

MAX_RECORDED_DEPTH = 100
"""Levels that are recorded of a value which is not JSON."""
MAX_RECORDED_PARTS = 5_000
"""Lists and objects that are recorded of a value which is not JSON."""
MAX_RECORDED_REPR = 200
"""Characters that are recorded of an object which is not JSON."""
MAX_ECHOES = 100
"""Values at secret places of one call that are searched for in the rest of the call."""
MIN_ECHOED = 4
"""Characters that such a value needs to be searched for."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_MASKED_JSON = orjson.dumps(MASK)
_anything = Decoder(Raw)


class Hiding:
    """Masks values that the schemas of a tool mark as secret, and keeps them: outputs may echo them."""

    def __init__(self, tool: Tool, mask: Mask, *, sent: bool, given: bool) -> None:
        self._tool = tool
        self._mask = mask
        self._hides_sent = sent
        self._hides_given = given
        self.found: list[str] = []

    def sent(self, value: Any) -> Any:
        """Mask the arguments, also under their aliases and as JSON in a text."""
        if not self._hides_sent:
            return value
        aliases, hidden = self._tool.argument_aliases, self._hider(self._tool.contract.input)
        plain = self._plain(value)
        if is_object(plain) and aliases:
            named = {
                key: hidden(item, (aliases[key],)) for key, item in plain.items() if key in aliases
            }
            plain = {**plain, **named}
        masked = hidden(plain, ())
        # In place of an object, any other value may hold the secret elsewhere.
        return masked if is_object(masked) else MASK

    def given(self, value: Any) -> Any:
        """Mask the output."""
        if not self._hides_given:
            return value
        return self._hider(self._tool.contract.output)(self._plain(value), ())

    def _plain(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview) or is_json(value):
            return cast("Any", value)
        return JsonConverter(self._mask).convert(value, MAX_RECORDED_DEPTH)

    def _hider(self, schema: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        # One for each call: it caches every path.
        places = SecretPlaces(schema, has_any=True)

        def hidden(value: Any, path: tuple[Any, ...]) -> Any:
            if len(path) > MAX_RECORDED_DEPTH or places.hide(list(path)):
                self._remember(value, MAX_RECORDED_DEPTH)
                return MASK
            if isinstance(value, Mapping):
                held = cast("Mapping[Any, Any]", value).items()
                return {key: hidden(item, (*path, key)) for key, item in held}
            if isinstance(value, list | tuple):
                items = enumerate(cast("list[Any]", value))
                return [hidden(item, (*path, index)) for index, item in items]
            if isinstance(value, str):
                inner = within_text(value, lambda held: hidden(held, path))
                return value if inner is None else inner
            return value

        return hidden

    def _remember(self, value: Any, depth: int) -> None:
        if len(self.found) >= MAX_ECHOES:
            return
        if isinstance(value, str):
            self.found.append(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.found.append(json_text(value))
            if isinstance(value, float) and value.is_integer():
                self.found.append(str(int(value)))
        elif isinstance(value, Mapping) and depth:
            for key, item in cast("Mapping[Any, Any]", value).items():
                self._remember(key, 0)
                self._remember(item, depth - 1)
        elif isinstance(value, list | tuple) and depth:
            for item in cast("list[Any]", value):
                self._remember(item, depth - 1)


class Mask:
    """Masks secrets in texts and in JSON, by value and by the header that carries them."""

    def __init__(
        self, secrets: Iterable[Secrets], on_news: Callable[[], None] | None = None
    ) -> None:
        self._secrets = AllSecrets()
        self._seen: Masker = self._secrets.masker()
        self._masker: Masker = self._seen
        self._on_news = on_news
        for each in secrets:
            self.hide(each)

    def hide(self, secrets: Secrets) -> None:
        """Mask these secrets from now on, including those that become known later."""
        self._secrets.hide(secrets)
        self.refresh()

    def also(self, values: Iterable[str]) -> Mask:
        """Return a mask that also hides these values."""
        more = Masker(values, shortest=MIN_ECHOED)
        if not more:
            return self
        mask = Mask(())
        mask._masker = Masker.joined((self._masker, more))
        return mask

    def finds(self, text: str) -> bool:
        """True if a text may contain a secret, even within JSON; also once after new secrets."""
        return mentions_secret_header(text) or self.refresh() or self._masker.finds(text)

    def refresh(self) -> bool:
        """Update the masker if sources have read more secrets since; True if they have."""
        latest = self._secrets.masker()
        if latest is self._seen:
            return False
        self._seen = self._masker = latest
        if self._on_news is not None:
            self._on_news()
        return True

    def text(self, text: Any) -> str:
        """Return a text without secrets, of bounded length, that every encoder accepts."""
        shown = text if isinstance(text, str) else _shown(text)
        if self.finds(shown):
            shown = without_carried(self._masker.mask(shown))
        return recordable(shown)

    def json(self, value: Any) -> bytes:
        """Return the JSON of a value without secrets; values that are not JSON are converted."""
        if isinstance(value, bytes | bytearray | memoryview):
            encoded = base64.b64encode(cast("bytes", value)).decode()
            value = {"data": encoded, "encoding": "base64"}
        try:
            data = orjson.dumps(value)
            _anything.decode(data)  # orjson writes a fragment without a check.
        except (TypeError, DecodeError):
            if not is_json(value):
                value = JsonConverter(self).convert(value, MAX_RECORDED_DEPTH)
            data = json_text(value).encode()
        return self._masked(data) if self.finds(data.decode()) else data

    def _masked(self, data: bytes) -> bytes:
        try:
            value = json.loads(data)  # Only JSON types from here on.
            text = json_text(without_carried(self._masker.mask_data(value)))
            if self._masker.finds(text):  # In a number, or across values.
                text = self._masker.mask(text)
                json.loads(text)
        except (ValueError, RecursionError):
            return _MASKED_JSON
        return text.encode()


def recordable(text: str) -> str:
    """Return a text of bounded length that every encoder accepts."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text[:MAX_RECORDED_TEXT])


class JsonConverter:
    """Converts a value that is not JSON to JSON: bounded, without cycles and secrets."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._left = MAX_RECORDED_PARTS
        self._above: set[int] = set()

    def convert(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str):
            return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, int):
            is_vast = value.bit_length() > 10_000  # Python writes no more than 4,300 digits.
            return f"an integer of {value.bit_length()} bits" if is_vast else int(value)
        if isinstance(value, Mapping | list | tuple | AbstractSet):
            return self._structure(cast("Any", value), depth)
        return self._mask.text(_shown(value))[:MAX_RECORDED_REPR]

    def _structure(self, value: Any, depth: int) -> Any:
        self._left -= 1
        place = id(value)
        if depth <= 0 or self._left < 0 or place in self._above:
            return "…"
        self._above.add(place)
        if isinstance(value, Mapping):
            pairs = list(cast("Mapping[Any, Any]", value).items())
            converted: Any = {str(self._key(k)): self.convert(v, depth - 1) for k, v in pairs}
        else:
            converted = [self.convert(item, depth - 1) for item in list(value)]
        self._above.discard(place)
        return converted

    def _key(self, key: Any) -> str:
        text = self.convert(key, 0) if isinstance(key, str | Enum) else _shown(key)
        return text if isinstance(key, str) else self._mask.text(text)[:MAX_RECORDED_REPR]


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - boundary: the repr of a handler's value
        return f"<{type(value).__name__}>"
