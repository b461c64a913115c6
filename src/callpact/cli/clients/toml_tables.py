"""Edits of one table in TOML text that keep everything else as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from callpact.cli.clients.json_comments import NotEditable

_HEADER = re.compile(r"[ \t]*\[")
_SPARE = re.compile(r"[ \t]*(?:#.*)?")


def read_toml(text: str) -> dict[str, Any]:
    """The data of a text.

    Raises:
        NotEditable: it is not TOML, with the line.
    """
    try:
        return tomllib.loads(text.lstrip("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotEditable(f"not TOML: {error}") from None


def with_table(text: str, parent: str, name: str, table: Mapping[str, Any]) -> str:
    """The text with the table `[parent.name]` replaced, or added at the end.

    Raises:
        NotEditable: the text is not TOML, or has the table in another form.
    """
    before = read_toml(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    block = write_table(parent, name, table).replace("\n", newline)
    lines = text.splitlines(keepends=True)
    own = _own_lines(lines, parent, name)
    if own:
        kept = [line for number, line in enumerate(lines) if number not in own]
        kept.insert(min(own), block)
        edited = "".join(kept)
    else:
        gap = newline * (2 if text and not text.endswith("\n") else 1 if text.strip() else 0)
        edited = f"{text}{gap}{block}"
    above = before.get(parent, {})
    if not isinstance(above, dict) or _data(edited) != {
        **before,
        parent: {**above, name: dict(table)},
    }:
        raise NotEditable(f"the table [{parent}.{name}] is written in a form that cannot be edited")
    return edited


def write_table(parent: str, name: str, table: Mapping[str, Any]) -> str:
    """A table as TOML; its values are texts, numbers, lists of them, or tables of texts."""
    lines = [
        f"[{parent}.{name}]",
        *(f"{_key(key)} = {_value(each)}" for key, each in table.items()),
    ]
    return "\n".join(lines) + "\n"


def _data(text: str) -> dict[str, Any] | None:
    try:
        return read_toml(text)
    except NotEditable:
        return None


def _own_lines(lines: list[str], parent: str, name: str) -> set[int]:
    """The numbers of the lines of a table and of the tables in it."""
    key = rf'(?:{re.escape(name)}|"{re.escape(name)}"|\'{re.escape(name)}\')'
    header = re.compile(
        rf"[ \t]*\[[ \t]*{re.escape(parent)}[ \t]*\.[ \t]*{key}[ \t]*(?:\.[^\]]*)?\]"
    )
    own: set[int] = set()
    is_inside = False
    spare: list[int] = []
    for number, line in enumerate(lines):
        if _HEADER.match(line):
            was_inside, is_inside = is_inside, header.match(line) is not None
            own.update(spare if was_inside and is_inside else ())
            spare = []
        if not is_inside:
            continue
        # Comments and empty lines before the next table belong to that one.
        if _SPARE.fullmatch(line.rstrip("\r\n")):
            spare.append(number)
        else:
            own.update(spare, [number])
            spare = []
    return own


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_key(str(key))} = {_value(each)}" for key, each in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any table
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"  # pyright: ignore[reportUnknownArgumentType] - any list
    # The texts of JSON are those of TOML, but for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
