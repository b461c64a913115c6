"""Findings about the texts of an MCP server's definitions, by fixed rules, offline.

A finding is a reason to read the definition, not a proof: a text can steer a model without any of
these phrases. Every text of a definition is scanned, also the names of parameters, default values
and `_meta`: models read them too. Phrases are searched in the text as a reader takes it
(`hidden_text.folded`), so that invisible characters and letters of other scripts do not hide them.
The patterns repeat nothing without a bound and the texts are cut, so hostile ones take linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from callpact.schema import is_array, is_object
from callpact.schema.document import MAX_SCHEMA_DEPTH, pointer
from callpact.sources.base import Finding, Severity
from callpact.sources.mcp.hidden_text import STYLED, disguised_words, folded, visible
from callpact.sources.mcp.pins import PinChange, PlainDefinitions

MAX_DESCRIPTION = 6_000
"""Characters of a text that are reported as a long one."""
MAX_SCANNED = 50_000
"""Characters of one text that are scanned."""
MAX_SCANNED_SERVER = 2_000_000
"""Characters of all texts of one server that are scanned."""
MAX_PARTS = 50_000
"""Keys and values of one definition that are scanned."""
MAX_OF_A_RULE = 3
"""Findings of one rule about one definition."""
MAX_FINDINGS = 500
"""Findings about one server."""
_MAX_SHOWN = 80


class TextRule(Struct, frozen=True):
    """One row: the code, its severity, what was found, and the remedy."""

    code: str
    severity: Severity
    meaning: str
    remedy: str


_SEVERITIES: dict[str, Severity] = {"e": "error", "w": "warning", "i": "info"}

# code | severity | what was found | what to do
_TABLE = """
TXT001 | w | invisible characters | read the text with them made visible; deny the tool if they carry a message
TXT002 | e | text in invisible tag characters or variation selectors | deny the tool: only a model reads this text
TXT003 | e | characters that change the direction of the text | read the text with them made visible: it is stored in another order than it is shown in
TXT004 | e | control characters of a terminal | deny the tool, or replace its description
TXT005 | w | a word with letters of another script that look like Latin ones | compare the name with the one that you expect
TXT006 | w | Latin letters in disguise (mathematical or enclosed) | read the text in plain letters; replace the description
TXT007 | w | a long run of white space, which moves the rest out of sight | read the text to its end
TXT010 | e | asks the model to ignore its instructions | deny the tool, or replace its description
TXT011 | w | asks the model to keep something from the user | deny the tool, or replace its description
TXT012 | w | asks the model to read or send something before a tool is used | replace the description, unless the step belongs to the tool's work
TXT013 | w | markup that imitates the instructions of the system | replace the description
TXT014 | w | gives the model orders beyond the use of this tool | replace the description
TXT020 | w | names a tool of another server | replace the description, unless the two servers belong together
TXT030 | w | a parameter for a secret | keep secrets out of the model's sight: give the server the secret by its environment, and hide the argument
TXT031 | i | a parameter for a token | if it is a secret, give it to the server by its environment, and hide the argument
TXT032 | w | names a place where keys are kept | deny the tool, unless these files are its work
TXT033 | i | names a file in which secrets are usual | allow the tool only where it may see them
TXT034 | w | asks for the conversation or the system prompt | deny the tool, unless this is its work
TXT035 | w | asks to send data to an address | replace the description, or deny the tool
TXT040 | i | a long text | replace the description by a shorter one: every model call pays for it
TXT041 | w | a text too long to scan; the rest is unknown | deny the tool, or replace its description
TXT042 | w | a comment of HTML, which a page does not show | read it; replace the description
TXT043 | i | markup of HTML that loads or hides something | replace the description where it is shown as a page
TXT050 | w | changed since the lock | review the change, then accept it with `callpact lock --accept`
TXT051 | i | not in the lock | review it, then accept it with `callpact lock --accept`
TXT052 | i | in the lock, but not of the server any more | accept it with `callpact lock --accept` if that is meant
TXT060 | w | more findings than are reported | deny the server until these are cleared
"""


def _row(line: str) -> TextRule:
    code, severity, meaning, remedy = (part.strip() for part in line.split(" | "))
    return TextRule(code, _SEVERITIES[severity], meaning, remedy)


TEXT_RULES: dict[str, TextRule] = {
    row.code: row for row in (_row(line) for line in _TABLE.strip().splitlines())
}
"""Every rule by its code."""

# --- Patterns for the text as it is --------------------------------------------------------------

# A selector behind an ideograph chooses its variant; Japanese names need it.
_TAGS = re.compile(
    r"[\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]|[\ufe00-\ufe0f]{2}"
    r"|(?<![\u3400-\u9fff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
)
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_TERMINAL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MARKS = re.compile(r"[\u061c\u200e\u200f]")
# Joiners belong to scripts other than Latin and to emoji, a selector to the symbol before it.
_INVISIBLE = re.compile(
    r"[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u2800\u3164"
    r"\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\ud800-\udfff]"
    r"|(?<!\A)\ufeff"
    r"|(?<![\u0300-\u1fff\u2100-\uffff\U00010000-\U0001ffff])[\u200c\u200d]"
    r"|[\u200c\u200d](?![\u0300-\u1fff\u2100-\uffff\U00010000-\U0001ffff])"
    r"|(?<![\xa9\xae\u203c-\u3299\U0001f000-\U0001faff0-9#*])[\ufe00-\ufe0f]"
)
_DISGUISED = re.compile(rf"{STYLED.pattern}{{3}}")
_WHITE = re.compile(r"\s{150}")

# --- Patterns for the folded text: in lower case, with single spaces or line breaks ---------------

_PATTERNS = {
    "TXT010": r"""
        \b(?:ignore|disregard|forget|override)\s
        (?:(?:all|any|every|of|the|your|these|those)\s){0,3}
        (?:(?:previous|prior|above|earlier|preceding|original|system|other)\s){1,2}
        (?:instruction|prompt|direction|directive|guideline)
        |\b(?:ignore|disregard|forget)\s(?:all\s)?(?:of\s)?(?:all|your)\s(?:instruction|guideline)
        """,
    "TXT011": r"""
        \b(?:do\snot|don['’]?t|never|must\snot|mustn['’]?t|should\snot)\s(?:\S{1,20}\s)?
        (?:tell|inform|mention|reveal|disclose|notify|alert)\s
        (?:\S{1,20}\s){0,6}?(?:users?|humans?|anyone|anybody)\b
        |\bwithout\s(?:telling|informing|mentioning)\s
        (?:\S{1,20}\s){0,4}?(?:users?|humans?|anyone|anybody)\b
        |\b(?:keep|hide)\s(?:this|it)\s(?:\S{1,20}\s)?(?:secret\b|hidden\b|from\sthe\s(?:user|human))
        """,
    "TXT012": r"""
        \b(?:before|prior\sto)\s(?:using|calling|invoking|running|you\s(?:use|call|invoke|run))\s
        (?:this|any|the|other|these)\s(?:\S{1,20}\s){0,3}?(?:tool|function)s?\b
        [^.]{0,80}?\b(?:read|open|cat|load|access|send|upload|copy|paste|attach)\b
        """,
    "TXT013": r"""
        </?\s?(?:important|system|system[-_](?:reminder|prompt|message)|critical|hidden|assistant
        |instructions?|override|admin)\s?/?>
        |<\|[a-z_]{1,30}\|>|\[/?inst\]|<</?sys>>
        |(?:\A|\n)\W{0,4}(?:system|assistant|developer)\s?:\s?
        (?:you|ignore|always|never|do\snot|don['’]?t|from\snow|new|the\s(?:user|assistant|model))\b
        """,
    "TXT014": r"""
        \byou\s(?:must|have\sto|need\sto|should)\salways\s(?:call|use|invoke|run|execute)\b
        |\balways\s(?:call|use|invoke|run)\sthis\s(?:tool|function)\s(?:first|before|instead|prior)\b
        |\bmust\s(?:always\s)?be\s(?:called|used|invoked|run)\s(?:\S{1,20}\s)?
        (?:first\b|before\s(?:any|every|all|each)\b)
        |\binstead\sof\s(?:any\s|all\s|every\s)?other\s(?:tool|function)
        |\b(?:never|do\snot|don['’]?t)\s(?:call|use|invoke|run)\s(?:any\s)?other\s(?:tool|function)
        |\b(?:when|whenever|while|if|once|as\slong\sas)\s(?:this|the)\s(?:\S{1,20}\s)?
        (?:tool|server)\sis\s(?:available|connected|present|installed|enabled|active|loaded)\b
        [^.]{0,100}?\b(?:must|always|never)\b
        """,
    "TXT032": r"""
        (?<![\w.])\.(?:ssh\b|gnupg\b|aws/|netrc\b|git-credentials\b|kube/config\b|cursor/mcp)
        |\bid[_\s](?:rsa|dsa|ecdsa|ed25519)\b|/etc/shadow\b|\bclaude_desktop_config\b
        |\buser['’]s\s(?:ssh|private)\skeys?\b
        """,
    "TXT033": r"""
        (?<![\w.])\.(?:env|npmrc|pypirc)\b(?!\.(?:example|sample|template))|/etc/passwd\b
        """,
    "TXT035": r"""
        \b(?:send|post|upload|forward|transmit|submit|exfiltrate|copy)\s(?:\S{1,20}\s){0,10}?
        to\s(?:\S{1,20}\s){0,3}?["'`(<]?https?://
        |\bbase64\b[^\n]{0,80}?\b(?:append|add|include|embed|put|send|post|upload)(?:s|d|ed|ing)?\s
        [^\n]{0,60}?https?://
        |!\[[^\]\n]{0,80}\]\(\s?https?://[^)\s?]{0,200}\?
        """,
    "TXT042": "<!--",
    "TXT043": r"""
        <(?:script|iframe|object|embed|img|style|link|form)\s[^<>]{0,200}>
        |\b(?:display\s?:\s?none|visibility\s?:\s?hidden|font-size\s?:\s?0)\b
        """,
}
_PHRASES = {code: re.compile(pattern, re.VERBOSE) for code, pattern in _PATTERNS.items()}
_IN_PARAMETERS = re.compile(
    r"\b(?:full|entire|whole|complete)\s(?:previous\s|prior\s|current\s)?(?:conversation|chat)\b"
    r"|\b(?:conversation|chat)\shistory\b|\bsystem\sprompt\b|\byour\s(?:instructions|reasoning)\b"
    r"|\bchain\sof\sthought\b"
)
_SEAM = re.compile(r"[_-]|(?<=[a-z0-9])(?=[A-Z])")
_NAME_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])|[^\W_]+")
_SECRET_NAME = re.compile(
    r"(?:\A|\s)(?:password|passwd|passphrase|secret|api\s?key|apikey|private\skey|ssh\skey"
    r"|secret\skey|access\skey|encryption\skey|credentials?|mnemonic|seed\sphrase|recovery\sphrase"
    r"|id\srsa|(?:access|auth|api|bearer|refresh|session|oauth|jwt|github|gitlab|slack|bot)\stoken)\Z"
)
_TOOL_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{2,127}")
_COMPOUND = re.compile(r"[_./-]|[a-z][A-Z]|[0-9]")


class _Hit(Struct, frozen=True):
    """A breach of a rule in one text, by the path of the text."""

    code: str
    path: tuple[str | int, ...] = ()
    shown: str = ""


class _Text(Struct, frozen=True):
    """A text of a definition: a value, or the name of a member with the member's value."""

    path: tuple[str | int, ...]
    text: str
    is_key: bool = False
    value: Any = None


def scan(
    source: str,
    definitions: PlainDefinitions,
    tool_names: Mapping[str, Iterable[str]] | None = None,
    changes: Iterable[PinChange] = (),
) -> tuple[Finding, ...]:
    """The findings about the texts of one server; of too many, the most severe ones.

    `tool_names` are the names of the tools of all servers, by source; `changes` is the result of
    `pins.compare`. The path of a finding points into the definition of its place; for the
    instructions it is empty.
    """
    foreign = _foreign(source, tool_names or {})
    left = MAX_SCANNED_SERVER
    findings = [_finding(f"{source} {_place(change)}", _change_hit(change)) for change in changes]
    for label, definition in _definitions(definitions):
        hits, size = _hits(definition, foreign, left)
        left -= size
        counts: Counter[str] = Counter()
        for hit in hits:
            counts[hit.code] += 1
            if counts[hit.code] <= MAX_OF_A_RULE:
                findings.append(_finding(f"{source} {label}", hit))
    if len(findings) > MAX_FINDINGS:
        findings.sort(key=_rank)
        findings[MAX_FINDINGS - 1 :] = [_finding(source, _Hit("TXT060"))]
    return tuple(findings)


def _rank(finding: Finding) -> int:
    return ("error", "warning", "info").index(finding.severity)


def _definitions(definitions: PlainDefinitions) -> Iterator[tuple[str, Any]]:
    for part in ("tool", "prompt", "resource", "template"):
        entries = definitions.get(f"{part}s")
        for i, entry in enumerate(entries if is_array(entries) else []):
            name = entry.get("name") if is_object(entry) else None
            yield f"{part} {_shown(name) if isinstance(name, str) else i}", entry
    yield "instructions", definitions.get("instructions")


def _place(change: PinChange) -> str:
    return change.part if change.part == "instructions" else f"{change.part} {_shown(change.name)}"


def _finding(place: str, hit: _Hit) -> Finding:
    rule = TEXT_RULES[hit.code]
    found = f"{rule.meaning}: {hit.shown}" if hit.shown else rule.meaning
    path = visible(pointer(hit.path))
    return Finding(place, rule.severity, f"{found}; {rule.remedy}", hit.code, path)


def _shown(text: str, start: int = 0) -> str:
    cut = text[start : start + _MAX_SHOWN]
    return f"{visible(cut)}…" if len(cut) < len(text) - start else visible(cut)


def _change_hit(change: PinChange) -> _Hit:
    if change.kind == "added":
        return _Hit("TXT051", shown=change.reason)
    if change.kind == "removed":
        return _Hit("TXT052")
    if change.reason:
        return _Hit("TXT050", shown=change.reason)
    paths = [_shown(field.path) or "text" for field in change.fields[:5]]
    more = ["…"] if len(change.fields) > 5 else []
    renamed = [f"renamed from {_shown(change.previous)}"] if change.previous is not None else []
    return _Hit("TXT050", shown=", ".join(renamed + paths + more))


# --- One definition ------------------------------------------------------------------------------


def _hits(definition: Any, foreign: Mapping[str, str], left: int) -> tuple[list[_Hit], int]:
    """The hits in one definition, and the number of characters that were scanned."""
    hits: list[_Hit] = []
    size = 0
    for found in _texts(definition):
        if found is None or size >= left:
            hits.append(_Hit("TXT041"))
            break
        length = len(found.text)
        if length > MAX_SCANNED:
            hits.append(_Hit("TXT041", found.path, f"{length:,} characters"))
        elif length > MAX_DESCRIPTION and found.path[:1] != ("icons",):
            hits.append(_Hit("TXT040", found.path, f"{length:,} characters"))
        text = found.text[:MAX_SCANNED]
        size += len(text)
        rules = (*_characters(text), *_phrases(found, text), *_secrets(found))
        hits += (_Hit(code, found.path, shown) for code, shown in rules)
        if foreign and not found.is_key:
            hits += (_Hit("TXT020", found.path, name) for name in _references(text, foreign))
    return hits, size


def _texts(definition: Any) -> Iterator[_Text | None]:
    """Every text of a definition, keys before their values; None if it is too large or too deep."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), definition)]
    parts = 0
    while stack:
        path, value = stack.pop()
        parts += 1
        if len(path) > MAX_SCHEMA_DEPTH or parts > MAX_PARTS:
            yield None
            return
        if isinstance(value, str):
            yield _Text(path, value)
        elif is_object(value):
            for key in value:
                yield _Text((*path, key), key, is_key=True, value=value[key])
            stack += (((*path, key), value[key]) for key in reversed(value))
        elif is_array(value):
            stack += (((*path, i), value[i]) for i in reversed(range(len(value))))


def _characters(text: str) -> Iterator[tuple[str, str]]:
    """Rules about single characters, in the text as it is."""
    if _WHITE.search(text.rstrip()):
        yield "TXT007", ""
    if text.isascii() and text.isprintable():
        return
    tags = _TAGS.search(text)
    if tags:
        yield "TXT002", _hidden_message(text) or _shown(text, max(0, tags.start() - 10))
    patterns = (
        ("TXT001", _INVISIBLE),
        ("TXT003", _BIDI),
        ("TXT004", _TERMINAL),
        ("TXT006", _DISGUISED),
    )
    for code, pattern in patterns:
        match = pattern.search(text)
        if match and not (tags and code == "TXT001"):
            yield code, _shown(text, max(0, match.start() - 10))
    if not _RIGHT_TO_LEFT.search(text) and (match := _MARKS.search(text)):
        yield "TXT001", _shown(text, max(0, match.start() - 10))
    words = disguised_words(text)
    if words:
        yield "TXT005", _shown(words[0])


def _hidden_message(text: str) -> str:
    """The letters that tag characters stand for."""
    message = "".join(chr(ord(c) - 0xE0000) for c in text if "\U000e0020" <= c <= "\U000e007e")
    return f"'{_shown(message)}'" if message else ""


def _phrases(found: _Text, text: str) -> Iterator[tuple[str, str]]:
    if found.path[:1] == ("icons",):
        return
    plain = folded(_words(text) if found.is_key else text)
    for code, pattern in _PHRASES.items():
        match = pattern.search(plain)
        if match:
            yield code, f"'{_shown(match[0])}'"
    if found.path[:1] in (("inputSchema",), ("arguments",)):
        match = _IN_PARAMETERS.search(plain)
        if match:
            yield "TXT034", f"'{_shown(match[0])}'"


def _words(name: str) -> str:
    """The words of a name in camelCase, snake_case or kebab-case."""
    return _SEAM.sub(" ", name)


# --- Other tools ---------------------------------------------------------------------------------


def _foreign(source: str, tool_names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The source of each name of a tool that only other servers have."""
    own = set(tool_names.get(source, ()))
    return {
        name: other
        for other, names in tool_names.items()
        if other != source
        for name in names
        if name not in own
    }


def _references(text: str, foreign: Mapping[str, str]) -> Iterator[str]:
    """Names of tools of other servers. A plain word counts only as `word` or "the word tool"."""
    seen: set[str] = set()
    for match in _TOOL_WORD.finditer(text):
        name = match[0].rstrip("./-")
        if name in seen or name not in foreign:
            continue
        is_quoted = text.startswith("`", match.start() - 1) and match.start() > 0
        if (
            _COMPOUND.search(name)
            or is_quoted
            or text.startswith(" tool", match.start() + len(name))
        ):
            seen.add(name)
            yield f"{_shown(name)} of {foreign[name]}"


# --- Parameters ----------------------------------------------------------------------------------


def _secrets(found: _Text) -> Iterator[tuple[str, str]]:
    """The rules about parameters that ask for a secret: by their names, or by their format."""
    path = found.path
    if found.is_key:
        is_parameter = path[0] == "inputSchema" and path[-2:-1] == ("properties",)
    else:
        is_parameter = path[:1] == ("arguments",) and path[2:] == ("name",)
    if not is_parameter:
        return
    schema = found.value if is_object(found.value) else {}
    if str(schema.get("type")) in {"boolean", "integer", "number"}:
        return
    words = " ".join(_NAME_WORDS.findall(found.text[:200])).lower()
    if _SECRET_NAME.search(words) or schema.get("format") == "password":
        yield "TXT030", _shown(found.text)
    elif words == "token":
        yield "TXT031", _shown(found.text)
