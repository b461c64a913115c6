"""Edits of JSON with comments change one member and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.cli.clients.json_comments import MAX_NESTING, NotEditable, read_json, with_member

PATH = ("servers", "shop")
ENTRY = {"command": "python", "args": ["-m", "callpact"]}
COMMENTED = """\
// My servers.
{
\t"inputs": [], /* none yet */
\t"servers": {
\t\t// The old one:
\t\t"files": { "command": "files", }, // keep
\t\t"last": { "command": "last" } // keep, too
\t\t// The end.
\t},
}
"""


def test_comments_trailing_commas_and_indentation_stay():
    edited = with_member(COMMENTED, PATH, ENTRY)
    added = '\t\t"shop": {\n\t\t\t"command": "python",\n\t\t\t"args": [\n\t\t\t\t"-m",\n'
    added += '\t\t\t\t"callpact"\n\t\t\t]\n\t\t}\n'
    expected = COMMENTED.replace('"last" } // keep, too\n', f'"last" }}, // keep, too\n{added}')
    assert edited == expected
    again = with_member(edited, PATH, {"command": "other"})
    assert again == expected.replace(added, '\t\t"shop": {\n\t\t\t"command": "other"\n\t\t}\n')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "servers": {\n    "shop": 1\n  }\n}\n'),
        (" \n", ' \n{\n  "servers": {\n    "shop": 1\n  }\n}\n'),
        ("{}", '{\n  "servers": {\n    "shop": 1\n  }\n}'),
        ('{"servers":{}}', '{"servers":{\n  "shop": 1\n}}'),
        ('{"a": 1}\n', '{"a": 1,\n  "servers": {\n    "shop": 1\n  }\n}\n'),
        (
            '{\r\n    "a": 1\r\n}',
            '{\r\n    "a": 1,\r\n    "servers": {\r\n        "shop": 1\r\n    }\r\n}',
        ),
        (
            '{\n  "servers": {\n    // none\n  }\n}',
            '{\n  "servers": {\n    // none\n    "shop": 1\n  }\n}',
        ),
        ('\ufeff{"servers": {"shop": 0}}', '\ufeff{"servers": {"shop": 1}}'),
        ('{"servers": {"a": 0,}}', '{"servers": {"a": 0,\n  "shop": 1\n}}'),
    ],
)
def test_a_member_is_added_in_the_style_of_the_file(before, after):
    assert with_member(before, PATH, 1) == after


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"servers": [1]}', "servers is not an object"),
        ("[]", "the file is not an object"),
        ('{"servers": {"shop": 1, "shop": 2}}', "occurs twice"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3"),
        ("{'a': 1}", "a name in quotes"),
        ('{"a": 01}', "expected a value"),
        ('{"a": 1} x', "the end of the file"),
        ('{"a": "\x01"}', "expected a value"),
        ("{", "got the end"),
        ("[" * (MAX_NESTING + 2), "levels deep"),
        ("/* never closed", "expected a value"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_place(text, named):
    with pytest.raises(NotEditable, match=named):
        with_member(text, PATH, ENTRY)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    data=st.dictionaries(st.text(max_size=5), JSON, max_size=4),
    servers=st.dictionaries(st.sampled_from(["shop", "a", "b"]), JSON, max_size=3),
    value=JSON,
    indent=st.sampled_from([None, 1, 4, "\t"]),
)
def test_only_the_member_changes_whatever_the_file_holds(data, servers, value, indent):
    before = {**data, "servers": servers}
    text = json.dumps(before, indent=indent)
    edited = with_member(text, PATH, value)
    assert json.loads(edited) == {**before, "servers": {**servers, "shop": value}}
    assert read_json(edited) == json.loads(edited)
    assert with_member(edited, PATH, value) == edited
