"""The reference says what the code says."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

import callpact
from callpact.codes import CODES
from callpact.contracts import LINT_RULES
from callpact.sandbox import HookLimits
from callpact.schema import check
from callpact.sources.flowmcp.check.rule_table import RULES
from callpact.sources.mcp.text_scan import TEXT_RULES

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PROTOCOL = (REFERENCE / "call-protocol.md").read_text("utf-8")
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PROTOCOL, re.DOTALL)]


def _reference(root, *arguments):
    return subprocess.run(
        [sys.executable, "scripts/reference.py", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_generated_pages_are_what_the_code_says():
    done = _reference(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


STALE = [
    ("api.md", "- `LocalBus()`", "- `LocalBus(size)`"),
    ("call-protocol.md", "| `stream` | boolean |", "| `stream` | text |"),
    ("call-protocol.md", "| `ACCESS_DENIED` |", "| `DENIED` |"),
    ("call-protocol.md", "| `MAX_PENDING`", "| `MAX_WAITING`"),
    ("codes.md", "ACCESS_DENIED", "DENIED"),
    ("flowmcp-codes.md", "| `VAL031` | error | error |", "| `VAL031` | error | warning |"),
    ("flowmcp-codes.md", "| `TST001` ", "| `TST000` "),
    ("lint-codes.md", "| `LNT010` | warning |", "| `LNT010` | error |"),
    ("mcp-text-codes.md", "| `TXT001` | warning |", "| `TXT001` | error |"),
]


def _copy(folder):
    for part in ("scripts", "src", "docs/reference"):
        shutil.copytree(ROOT / part, folder / part)
    return folder / "docs" / "reference"


def test_stale_pages_are_found_and_written_anew(tmp_path):
    pages = _copy(tmp_path)
    good = {name: (pages / name).read_text("utf-8") for name, _, _ in STALE}
    for name, right, wrong in STALE:
        text = (pages / name).read_text("utf-8")
        assert right in text
        (pages / name).write_text(text.replace(right, wrong), "utf-8")
    done = _reference(tmp_path, "--check")
    assert done.returncode == 1
    assert all(f"docs/reference/{name} is not" in done.stdout for name in good)
    assert _reference(tmp_path).returncode == 0
    assert {name: (pages / name).read_text("utf-8") for name in good} == good


def test_what_is_written_by_hand_on_a_page_with_marks_stays(tmp_path):
    path = _copy(tmp_path) / "call-protocol.md"
    path.write_text(PROTOCOL + "\nBy hand.\n", "utf-8")
    assert _reference(tmp_path).returncode == 0
    assert path.read_text("utf-8") == PROTOCOL + "\nBy hand.\n"
    path.write_text(PROTOCOL.replace("<!-- codes -->", ""), "utf-8")
    assert "call-protocol.md must hold one section" in _reference(tmp_path, "--check").stderr


def test_every_public_name_stands_once_on_the_page_of_the_api():
    page = (REFERENCE / "api.md").read_text("utf-8")
    entries = re.findall(r"^- `(?:await )?(\w+).*`.*: \S.*\.$", page, re.MULTILINE)
    modules = re.findall(r"^## (callpact[.\w]*)$", page, re.MULTILINE)
    public = {name for module in modules for name in importlib.import_module(module).__all__}
    assert sorted(entries) == sorted(public)
    assert set(callpact.__all__) < public


def test_every_event_has_examples_that_keep_its_schema_and_show_every_field():
    assert {example["type"] for example in EXAMPLES} == callpact.protocol.CALL_EVENT_SCHEMAS.keys()
    for kind, schema in callpact.protocol.CALL_EVENT_SCHEMAS.items():
        examples = [example for example in EXAMPLES if example["type"] == kind]
        assert [check(schema, example) for example in examples] == [[]] * len(examples)
        shown = {key for example in examples for key in example}
        assert shown == schema["properties"].keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["type"])
def test_an_example_is_what_we_write_for_what_we_read(example):
    assert (
        json.loads(callpact.protocol.write_event(callpact.protocol.decode_event(example)))
        == example
    )


def test_every_code_of_the_bus_is_read_as_the_page_says():
    for code, row in CODES.items():
        [line] = re.findall(rf"^\| `{row.event}` \|.*$", PROTOCOL, re.MULTILINE)
        assert f"`{code}`" in line
    unknown = callpact.protocol.CallFailed("r", "UNKNOWN_ERROR", "").error
    assert "`UNKNOWN_ERROR`, which we never send, is read as `handler_error`" in PROTOCOL
    assert unknown.code == "handler_error"


def test_the_glossary_has_one_row_for_each_word():
    page = (REFERENCE / "glossary.md").read_text("utf-8")
    words = Counter(re.findall(r"^\| \*\*(.+?)\*\* \| \S", page, re.MULTILINE))
    assert set(words.values()) == {1}
    assert words.keys() >= {"Access", "Identity", "scope", "bus", "event", "subscription", "env"}
    assert words.keys() >= {"hook", "sandbox", "library / pack", "secret", "placeholder"}
    assert words.keys() >= {"output", "Answer"}


def test_every_code_has_a_row():
    page = (ROOT / "docs/reference/codes.md").read_text("utf-8")
    for code in CODES:
        assert f"`{code}`" in page


def test_every_code_of_flowmcp_has_one_row_with_both_severities_and_a_remedy():
    page = (REFERENCE / "flowmcp-codes.md").read_text("utf-8")
    severity = "error|warning|info|not told"
    row = rf"^\| `(\S+)`(?: \((\w+)\))? \| (?:{severity}) \| (?:{severity}) \| \S.* \| \S.* \| \S.* \|$"
    found = Counter(
        f"{code}:{part}" if part else code for code, part in re.findall(row, page, re.MULTILINE)
    )
    assert found == Counter(list(RULES))


def test_every_code_of_the_text_scan_has_one_row():
    page = (REFERENCE / "mcp-text-codes.md").read_text("utf-8")
    row = r"^\| `(TXT\d+)` \| (?:error|warning|info) \| \S.* \| \S.* \|$"
    assert re.findall(row, page, re.MULTILINE) == list(TEXT_RULES)


def test_every_code_of_the_lint_has_one_row():
    page = (REFERENCE / "lint-codes.md").read_text("utf-8")
    row = r"^\| `(LNT\d+)` \| (?:error|warning|info) \| \S.* \| \S.* \| (?:004|own) \|$"
    assert re.findall(row, page, re.MULTILINE) == list(LINT_RULES)


def test_every_limit_of_the_gateway_that_a_user_can_meet_has_a_row():
    page = (REFERENCE / "limits.md").read_text("utf-8")
    servers = page.partition("## MCP servers")[2].partition("##")[0]
    for name in ("MAX_PAGES", "LIST_SECONDS", "MAX_FOLLOWED", "MAX_FINDINGS", "MAX_LOCK_BYTES"):
        assert f"| `{name}` | " in servers


def test_every_limit_of_hooks_has_a_row_and_a_field_of_hook_limits_keeps_it():
    page = (REFERENCE / "limits.md").read_text("utf-8")
    hooks = page.partition("## Hooks")[2].partition("##")[0]
    for name, value in structs.asdict(HookLimits()).items():
        assert f"| `MAX_{name.upper()}` | {value:,} | " in hooks


def test_every_reason_of_a_hook_that_breaks_a_limit_stands_in_the_guide():
    guide = (ROOT / "docs" / "guides" / "flowmcp-hooks.md").read_text("utf-8")
    code = (ROOT / "src" / "callpact" / "sandbox" / "steps.py").read_text("utf-8")
    names = re.findall(r'^        case "(\w+)":$', code, re.MULTILINE)
    assert "Timeout" in names
    for name in names:
        assert f"`{name}`" in guide


def test_every_command_has_a_section():
    page = (REFERENCE / "command-line.md").read_text("utf-8")
    sections = re.findall(r"^## callpact (.+)$", page, re.MULTILINE)
    assert {"call", "check", "libs add", "libs list", "libs remove"} <= set(sections)


def test_every_extra_is_named_in_the_readme():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    readme = (ROOT / "README.md").read_text("utf-8")
    for extra in extras:
        assert f"callpact[{extra}]" in readme


def test_words_that_the_glossary_replaces_stay_out_of_public_names():
    # `operation_id` is seed 001's own name for a member of the local meta.
    for name in callpact.__all__:
        for word in ("route", "operation", "adapter", "provider", "payload"):
            assert word not in name.lower()


def test_except_exception_stands_only_at_the_boundaries_that_the_architecture_lists():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    listed = page[page.index("Boundaries") :]
    source = ROOT / "src" / "callpact"
    for path in source.rglob("*.py"):
        if "except Exception" in path.read_text("utf-8") or "except (Exception" in path.read_text(
            "utf-8"
        ):
            assert f"`{path.relative_to(source)}`" in listed
