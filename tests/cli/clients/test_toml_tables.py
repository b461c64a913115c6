"""Edits of TOML change one table and nothing else."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.cli.clients.json_comments import NotEditable
from callpact.cli.clients.toml_tables import with_table

ENTRY = {"command": "C:\\py.exe", "args": ["-m", "callpact"], "env": {"A B": "c"}}
WRITTEN = """\
[mcp_servers.shop]
command = "C:\\\\py.exe"
args = ["-m", "callpact"]
env = { "A B" = "c" }
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", WRITTEN),
        ("# mine\nmodel = 'x'\n", f"# mine\nmodel = 'x'\n\n{WRITTEN}"),
        ("a = 1", f"a = 1\n\n{WRITTEN}"),
        (
            "[mcp_servers.shop]\ncommand = 'old'\n\n[mcp_servers.shop.env]\nX = '1'\n\n# next\n[b]\n",
            f"{WRITTEN}\n# next\n[b]\n",
        ),
        (
            "[mcp_servers.\"shop\"]\ncommand = 'old'\n[b]\nc = 1 # keep\n",
            f"{WRITTEN}[b]\nc = 1 # keep\n",
        ),
        (
            "[mcp_servers.shop2]\ncommand = 'a'\n",
            f"[mcp_servers.shop2]\ncommand = 'a'\n\n{WRITTEN}",
        ),
        ("a = 1\r\n", "a = 1\r\n\r\n" + WRITTEN.replace("\n", "\r\n")),
    ],
)
def test_a_table_is_added_or_replaced_and_the_rest_stays(before, after):
    assert with_table(before, "mcp_servers", "shop", ENTRY) == after


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a = ", "not TOML"),
        ("mcp_servers = { shop = { command = 'x' } }", "cannot be edited"),
        ("mcp_servers = 1", "cannot be edited"),
        ("mcp_servers.shop.command = 'x'\n", "cannot be edited"),
        ("[mcp_servers.shop]\nargs = [\n['x'],\n]\n", "cannot be edited"),
    ],
)
def test_what_cannot_be_edited_is_refused(text, named):
    with pytest.raises(NotEditable, match=named):
        with_table(text, "mcp_servers", "shop", {"command": "y"})


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        max_size=4,
    )
)
def test_every_text_survives(env):
    edited = with_table("a = 1\n", "mcp_servers", "shop", {"env": env})
    assert tomllib.loads(edited) == {"a": 1, "mcp_servers": {"shop": {"env": env}}}
