"""The table of lint rules: code, severity, origin, the finding and its remedy.

Rules from *004* are the authoring advice of seed 004; *own* rules are ours. Seed 004 also advises
not to check in a handler what the schema checks: code is not read here, so no rule covers that.
"""

from __future__ import annotations

from msgspec import Struct

from callpact.sources.base import Severity


class LintRule(Struct, frozen=True):
    """One row: the code, its severity, where the advice is from, the finding, and the remedy."""

    code: str
    severity: Severity
    source: str
    meaning: str
    remedy: str


_SEVERITIES: dict[str, Severity] = {"e": "error", "w": "warning", "i": "info"}

# code | severity | from | what was found | what to do
_TABLE = """
LNT001 | w | 004 | a tool has no description, or one that only repeats its name | say what the tool does and what it needs; the model chooses by it
LNT002 | w | own | tools of a namespace have the same description | say in each what sets it apart from the others
LNT003 | w | own | two properties of an object differ only in case, `_` or `-` | keep one of the names, or rename one
LNT010 | w | 004 | a property has no description, or one that only repeats its name | describe the value and its form, with an example where that helps
LNT020 | w | 004 | the description of a text lists fixed values, and there is no `enum` | list the values in `enum`
LNT030 | w | 004 | a property is required, and its description calls it optional or names a default | make it optional, with the default in `default`
LNT031 | w | 004 | the description of an optional property names a default, and there is no `default` | write the value into `default`
LNT032 | i | 004 | a number for paging is required | make it optional, with a sensible `default`
LNT040 | w | 004 | a `pattern` without an example that matches it | relax the pattern, or give an example that matches
LNT041 | w | 004 | an example or default of a property is refused by its schema | correct the value, or relax the schema
LNT042 | w | 004 | an example of a tool is refused by its input schema | correct the example, or relax the schema
LNT043 | e | 004 | no value can satisfy the schema of a property | correct the contradiction
LNT050 | w | 004 | a required array may be empty | set `minItems: 1`, or make it optional if an empty one has a meaning
LNT051 | i | 004 | a required text may be empty | set `minLength: 1`, or make it optional if an empty one has a meaning
LNT060 | i | own | a number of results has no upper bound | set `maximum`
LNT070 | w | own | a tool has many parameters | split the tool, or hide parameters that callers do not need
LNT071 | w | own | the input is deeply nested | flatten it: models fill flat objects more reliably
LNT080 | w | 004 | a tool has no output schema | declare the output, so that malformed data is found and clients know the fields
LNT090 | i | own | a schema is too large to be read in full | split the tool
"""


def _row(line: str) -> LintRule:
    code, severity, source, meaning, remedy = (part.strip() for part in line.split(" | "))
    return LintRule(code, _SEVERITIES[severity], source, meaning, remedy)


LINT_RULES: dict[str, LintRule] = {
    row.code: row for row in (_row(line) for line in _TABLE.strip().splitlines())
}
"""Every rule by its code."""
