"""References and configuration into one catalog."""

from __future__ import annotations

import asyncio
import importlib

import pytest

from callpact.app import Options, Session
from callpact.errors import CallpactError, DuplicateTool, InvalidConfig, SourceRefused
from callpact.sources import Opening

TOOLS = """
from callpact import tool

@tool
def search(q: str) -> int:
    return 1

@tool
def delete(id: str) -> int:
    return 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("app_shop", "app_bank"):
        (tmp_path / f"{name}.py").write_text(TOOLS, "utf-8")
    return tmp_path


def load(refs=(), config=None, **given):
    session = Session(Options(refs=tuple(refs), config=config, **given))
    asyncio.run(session.load())
    return session.loaded


def configure(folder, text):
    path = folder / "callpact.toml"
    path.write_text(text, "utf-8")
    return path


def ids(app):
    return [tool.id for tool in app.catalog]


def problem(refs=(), config=None) -> str:
    with pytest.raises(CallpactError) as caught:
        load(refs, config)
    return str(caught.value)


@pytest.mark.parametrize(
    "ref", ["app_shop.py", "./app_shop.py", "python:app_shop.py", "python:app_shop"]
)
def test_a_source_can_be_named_in_several_ways(folder, ref):
    assert ids(load([ref])) == ["app_shop.search", "app_shop.delete"]


def test_several_sources_make_one_catalog(folder):
    assert len(load(["app_shop.py", "app_bank.py"]).catalog) == 4


def test_named_sources_win_over_the_file(folder):
    configure(folder, '[sources.bank]\nref = "python:app_bank.py"')
    assert ids(load(["app_shop.py:search"])) == ["app_shop.search"]


def test_the_name_of_a_table_is_the_namespace(folder):
    configure(folder, '[sources.bank]\nref = "python:app_bank.py"')
    assert ids(load()) == ["bank.search", "bank.delete"]


def test_references_in_a_file_start_at_the_files_own_folder(folder, tmp_path_factory, monkeypatch):
    path = configure(folder, '[sources.bank]\nref = "python:app_bank.py"')
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert ids(load(config=path)) == ["bank.search", "bank.delete"]


def test_policy_selection_and_timeout_of_a_table_hold_for_its_tools(folder):
    configure(
        folder,
        '[sources.shop]\nref = "python:app_shop.py"\npolicy = "reject"\n'
        'allow = ["shop.*"]\ndeny = ["shop.del*"]\ntimeout = 2',
    )
    (tool,) = load().catalog
    assert (tool.id, tool.contract.policy, tool.timeout) == ("shop.search", "reject", 2.0)


@pytest.mark.parametrize("key", ["allow", "deny"])
def test_a_pattern_that_fits_no_tool_is_a_warning(folder, key):
    patterns = '["shop.*", "shop.delet"]' if key == "allow" else '["shop.delet"]'
    configure(folder, f'[sources.shop]\nref = "python:app_shop.py"\n{key} = {patterns}')
    app = load()
    assert len(app.catalog) == 2
    (finding,) = app.report
    assert finding.severity == "warning"
    assert f"{key} 'shop.delet'" in finding.message


def test_a_selection_that_leaves_nothing_is_told_with_what_there_was(folder):
    configure(folder, '[sources.shop]\nref = "python:app_shop.py"\nallow = ["bank.*"]')
    assert "shop.search" in problem()


def test_no_source_at_all_says_how_to_name_one(folder):
    told = problem()
    assert "-s" in told
    assert "callpact init" in told


def test_a_file_without_sources_says_what_to_add(folder):
    with pytest.raises(InvalidConfig, match=r"\[sources\.NAME\]"):
        load(config=configure(folder, ""))


@pytest.mark.parametrize("ref", ["shop.json", "ftp://example.org", "cobol:shop", "python:", ""])
def test_a_reference_that_no_source_reads_says_what_one_looks_like(folder, ref):
    with pytest.raises(SourceRefused) as caught:
        load([ref])
    assert f"'{ref}'" in str(caught.value)
    assert "python:shop.py" in str(caught.value)


def test_a_file_without_its_ending_is_suggested(folder):
    assert "did you mean app_shop.py?" in problem(["app_shop"])


def test_a_refused_source_is_reported_and_leaves_the_others_alone(folder):
    app = load(["app_shop.py", "nosuch.py"])
    assert len(app.catalog) == 2
    assert [(f.place, f.severity) for f in app.report] == [("nosuch.py", "error")]


def test_if_every_source_is_refused_all_are_told(folder):
    told = problem(["nosuch.py", "neither.py"])
    assert "nosuch.py" in told
    assert "neither.py" in told


def test_two_tools_of_one_name_are_told_with_both_sources(folder):
    configure(
        folder,
        '[sources.a]\nref = "python:twin_a.py"\n[sources.b]\nref = "python:twin_b.py"',
    )
    for name in ("twin_a", "twin_b"):
        text = TOOLS.replace("@tool\n", "@tool(namespace='shop')\n")
        (folder / f"{name}.py").write_text(text, "utf-8")
    with pytest.raises(DuplicateTool) as caught:
        load()
    assert "python:twin_a.py:search" in str(caught.value)
    assert "python:twin_b.py:search" in str(caught.value)


# --- sources of other packages --------------------------------------------------------------

SOURCE = """
from callpact import Contract, Tool
from callpact.sources.base import Tools

closed = []


async def echo(arguments, context):
    return arguments


class EchoSource:
    def __init__(self, name):
        self.name = name

    async def load(self):
        tool = Tool(id="echo.say", description="Echo.", contract=Contract(), handler=echo, source=self.name)
        return Tools([tool])

    async def aclose(self):
        closed.append(self.name)


def open_echo(opening):
    return EchoSource(opening.ref)
"""


@pytest.fixture
def echo_source(folder):
    """A package that registers a kind of source, as any other package can."""
    (folder / "app_echo_source.py").write_text(SOURCE, "utf-8")
    info = folder / "app_echo_source-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: app-echo-source\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[callpact.sources]\necho = app_echo_source:open_echo\n")
    module = importlib.import_module("app_echo_source")
    module.closed.clear()
    return module


def test_a_package_can_bring_a_kind_of_source(echo_source):
    app = load(["echo:one"])
    assert ids(app) == ["echo.say"]
    asyncio.run(app.aclose())
    assert echo_source.closed == ["one"]


def test_sources_are_closed_when_their_tools_collide(echo_source):
    with pytest.raises(DuplicateTool):
        load(["echo:one", "echo:two"])
    assert echo_source.closed == ["one", "two"]


@pytest.mark.parametrize(("mode", "told"), [(0o644, 1), (0o600, 0)])
def test_a_file_of_keys_that_others_can_read_is_told(folder, mode, told):
    (folder / "keys.env").write_text("TEA_KEY=0123456789\n", "utf-8")
    (folder / "keys.env").chmod(mode)
    (folder / "shop.py").write_text(
        "from callpact import tool\n\n\n@tool\nasync def price() -> int:\n    return 1\n", "utf-8"
    )
    config = folder / "callpact.toml"
    config.write_text('[sources.shop]\nref = "python:shop.py"\nsecrets = "keys.env"\n', "utf-8")
    warnings = [finding.message for finding in load([], config).report]
    assert len(warnings) == told
    assert not any("0123456789" in warning for warning in warnings)


# --- keys -----------------------------------------------------------------------------------

KEYED = """
export const main = {{
    namespace: '{name}', name: 'Keyed', description: 'Keyed.', version: '4.0.0',
    root: 'https://api.{name}.example', requiredServerParams: [ '{key}' ],
    tools: {{ getIt: {{
        method: 'GET', path: '/it', description: 'It',
        parameters: [ {{ position: {{ key: 'k', value: '{{{{{key}}}}}', location: 'query' }},
            z: {{ primitive: 'string()', options: [] }} }} ],
        tests: [ {{ _description: 'One' }} ]
    }} }}
}}
"""


def catalogue(folder, name, key):
    (folder / name).mkdir()
    (folder / name / "Keyed.mjs").write_text(KEYED.format(name=name, key=key), "utf-8")


def keyless(app):
    return {tool.id: tool.disabled.reason for tool in app.catalog if tool.disabled is not None}


def env_file(folder, text):
    (folder / "keys.env").write_text(text, "utf-8")
    (folder / "keys.env").chmod(0o600)


@pytest.mark.parametrize("is_in_file", [True, False])
@pytest.mark.parametrize("keys", ["*", "DOOR_TOKEN"])
def test_a_token_of_a_door_is_given_to_no_source(folder, monkeypatch, is_in_file, keys):
    catalogue(folder, "tea", "DOOR_TOKEN")
    top = ""
    if is_in_file:
        env_file(folder, "DOOR_TOKEN=a-token-of-the-door\n")
        top = 'secrets = "keys.env"\n'
    else:
        monkeypatch.setenv("DOOR_TOKEN", "a-token-of-the-door")
    config = configure(
        folder,
        f'{top}[sources.tea]\nref = "flowmcp:tea"\nkeys = ["{keys}"]\n'
        '[serve.tokens.ci]\nsecret = "DOOR_TOKEN"\n',
    )
    given = {"opening": Opening("", keys=("*",)), "secrets": folder / "keys.env" if top else None}
    for app in (load((), config), load(["flowmcp:tea"], config, **given)):
        assert "is a token of [serve]" in keyless(app)["tea.getIt"]


def test_a_source_is_given_the_keys_of_its_own_table_alone(folder, monkeypatch):
    monkeypatch.setenv("TEA_KEY", "the-key-of-the-tea")
    catalogue(folder, "tea", "TEA_KEY")
    catalogue(folder, "evil", "TEA_KEY")
    config = configure(
        folder,
        '[sources.tea]\nref = "flowmcp:tea"\nkeys = ["TEA_KEY"]\n'
        '[sources.evil]\nref = "flowmcp:evil"\n',
    )
    reasons = keyless(load((), config))
    assert list(reasons) == ["evil.getIt"]
    assert "TEA_KEY is set, but not granted" in reasons["evil.getIt"]


def test_of_a_file_that_sources_share_each_is_given_the_keys_it_names(folder):
    env_file(folder, "TEA_KEY=the-key-of-the-tea\n")
    catalogue(folder, "tea", "TEA_KEY")
    catalogue(folder, "evil", "TEA_KEY")
    tables = '[sources.tea]\nref = "flowmcp:tea"\nkeys = ["TEA_KEY"]\n[sources.evil]\nref = "flowmcp:evil"\n'
    config = configure(folder, f'secrets = "keys.env"\n{tables}')
    assert list(keyless(load((), config))) == ["evil.getIt"]
    own = configure(folder, f'{tables}secrets = "keys.env"\n')
    assert list(keyless(load((), own))) == ["tea.getIt"]


def test_one_source_is_given_all_keys_of_the_file_also_beside_code_of_the_users_own(folder):
    env_file(folder, "TEA_KEY=the-key-of-the-tea\n")
    catalogue(folder, "tea", "TEA_KEY")
    config = configure(
        folder,
        'secrets = "keys.env"\n[sources.tea]\nref = "flowmcp:tea"\n'
        '[sources.shop]\nref = "python:app_shop.py"\n',
    )
    assert keyless(load((), config)) == {}
