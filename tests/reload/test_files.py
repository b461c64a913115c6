"""Configuration, keys and folders that change while they are served."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

import calls
from callpact.reload.snapshot import Watch, stamps
from callpact.secrets import Secrets
from callpact.sources import Opening
from callpact.sources.base import Watched
from watched import ANOTHER, SAME, TOOL, configure, first, run, told, until

# --- configuration and secrets --------------------------------------------------------------


def test_the_configuration_is_read_again_and_only_what_it_changes(folder):
    first(folder, "w_x.py", TOOL.format(**SAME))
    first(folder, "w_y.py", TOOL.format(**SAME) + ANOTHER)
    first(folder, "w_z.py", TOOL.format(**SAME))
    x, y, z = (f'[sources.{n}]\nref = "python:w_{n}.py"\n' for n in "xyz")
    config = configure(folder, x + y)

    async def story(at):
        kept = at.runtime.catalog.get("x.price").handler
        config.write_text(x + y + 'deny = ["y.stock"]\n' + z, "utf-8")
        await at.log.until("callpact.toml changed", "added z.price", "removed y.stock")
        assert at.ids() == ["x.price", "y.price", "z.price"]
        assert at.runtime.catalog.get("x.price").handler is kept
        config.write_text(x, "utf-8")
        await at.log.until("removed y.price, z.price")
        assert at.ids() == ["x.price"]
        assert at.announced == [told(tools=True)] * 2
        # What is no longer wanted is no longer watched.
        (folder / "w_z.py").write_text("1 / 0", "utf-8")
        (folder / "w_x.py").write_text(TOOL.format(**SAME) + ANOTHER, "utf-8")
        await at.log.until("added x.stock")
        assert at.log.all("WARNING") == []

    run(story, config=config)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[sources", "not TOML"),
        ("", "names no source"),
        ("[sources.x]\nref = 3", "sources.x.ref"),
        (None, "no such file"),
    ],
)
def test_a_broken_configuration_changes_nothing(folder, text, reason):
    first(folder, "w_cfg.py", TOOL.format(**SAME))
    good = '[sources.x]\nref = "python:w_cfg.py"\n'
    config = configure(folder, good)

    async def story(at):
        config.unlink() if text is None else config.write_text(text, "utf-8")
        await at.log.until("callpact.toml", reason, "stays", level="WARNING")
        assert at.ids() == ["x.price"]
        config.write_text(good + "timeout = 3\n", "utf-8")
        await at.log.until("callpact.toml is whole again", level="WARNING")
        await until(lambda: at.runtime.catalog.get("x.price").timeout == 3)

    run(story, config=config)


def test_a_source_that_the_configuration_makes_unusable_stays_as_it_was(folder):
    first(folder, "w_use.py", TOOL.format(**SAME))
    good = '[sources.x]\nref = "python:w_use.py"\n'
    config = configure(folder, good)

    async def story(at):
        config.write_text(good + 'allow = ["nothing"]\n', "utf-8")
        await at.log.until("leave no tool", "the version from before stays")
        assert at.ids() == ["x.price"]
        config.write_text(good + 'allow = ["x.*"]\n', "utf-8")
        await at.log.until("whole again")

    run(story, config=config)


def flow(*names, **fields):
    data = calls.main({name: calls.tool(calls.parameter("q")) for name in names}, **fields)
    return calls.exported(data)


def test_a_key_that_is_added_makes_its_tools_callable_and_is_hidden(folder):
    keyed = flow("getIt", requiredServerParams=["SHOP_KEY"])
    first(folder, "shop/Shop.mjs", keyed)
    keys = first(folder, "keys.env", "OTHER=x\n")
    keys.chmod(0o600)
    config = configure(folder, 'secrets = "keys.env"\n[sources.x]\nref = "flowmcp:shop"\n')
    hidden = []

    async def story(at):
        assert at.runtime.catalog.get("shop.getIt").disabled is not None
        keys.write_text("SHOP_KEY=0123456789\n", "utf-8")
        await at.log.until("keys.env changed")
        assert at.runtime.catalog.get("shop.getIt").disabled is None
        assert at.announced == [told(tools=True)]
        (folder / "shop/Shop.mjs").write_text(keyed.replace("Does it", "Does that"), "utf-8")
        await at.log.until("Shop.mjs changed")

    run(story, config=config, hide=hidden.append)
    assert all("0123456789" not in repr(secrets) for secrets in hidden)
    # Unchanged keys are not known anew with every version of a source.
    assert len({id(secrets) for secrets in hidden}) == 2
    assert hidden[1].mask("0123456789") == "***"


def test_keys_given_for_all_sources_are_watched_too(folder):
    first(folder, "shop/Shop.mjs", flow("getIt", requiredServerParams=["SHOP_KEY"]))
    keys = first(folder, "given.env", "OTHER=x\n")
    keys.chmod(0o600)

    def given():
        return Opening("", secrets=Secrets(None, keys, os.environ))

    async def story(at):
        keys.write_text("not a line\n", "utf-8")
        await at.log.until("given.env", "line 1", "the version from before stays")
        keys.write_text("SHOP_KEY=0123456789\n", "utf-8")
        await at.log.until("whole again")
        assert at.runtime.catalog.get("shop.getIt").disabled is None
        keys.write_text("OTHER=x\n", "utf-8")
        await at.log.until("removed shop.getIt")
        assert at.runtime.catalog.get("shop.getIt").disabled is not None

    run(story, "flowmcp:shop", given=given, files=(keys,))


# --- folders of files -----------------------------------------------------------------------


def test_files_of_a_folder_are_noticed_when_they_come_change_and_go(folder):
    first(folder, "shop/a/One.mjs", flow("getOne"))

    async def story(at):
        (folder / "shop/b").mkdir()
        two = folder / "shop/b/Two.mjs"
        two.write_text(flow("getTwo", namespace="two"), "utf-8")
        await at.log.until("added two.getTwo")
        two.write_text(flow("getTwo", namespace="two").replace("Does it", "Does that"), "utf-8")
        await at.log.until("changed two.getTwo")
        two.unlink()
        await at.log.until("removed two.getTwo")
        assert at.announced == [told(tools=True)] * 3
        return at.ids()

    assert run(story, "flowmcp:shop") == ["shop.getOne"]


def test_a_shared_list_that_changes_changes_the_tools_that_use_it(folder):
    colours = calls.a_list(entries=[{"alias": "red"}])
    data = calls.main(
        {"getIt": calls.tool(calls.parameter("c", "enum({{colours:alias}})"))},
        sharedLists=[{"ref": "colours", "version": "1.0.0"}],
    )
    first(folder, "shop/Shop.mjs", calls.exported(data))
    path = first(folder, "shop/_lists/colours.mjs", calls.exported(colours, "list"))

    async def story(at):
        new = calls.a_list(entries=[{"alias": "red"}, {"alias": "blue"}])
        path.write_text(calls.exported(new, "list"), "utf-8")
        await at.log.until("colours.mjs changed", "changed shop.getIt")
        return at.runtime.catalog.get("shop.getIt").contract.input["properties"]["c"]["enum"]

    assert run(story, "flowmcp:shop") == ["red", "blue"]


def test_shared_lists_above_a_folder_and_those_that_are_given_are_watched(folder):
    red, blue = (calls.a_list(entries=[{"alias": name}]) for name in ("red", "blue"))
    data = calls.main(
        {"getIt": calls.tool(calls.parameter("c", "enum({{colours:alias}})"))},
        sharedLists=[{"ref": "colours", "version": "1.0.0"}],
    )
    first(folder, "all/shop/Shop.mjs", calls.exported(data))
    first(folder, "all/_lists/colours.mjs", calls.exported(red, "list"))
    (folder / "given").mkdir()
    config = configure(folder, '[sources.x]\nref = "flowmcp:all/shop"\nlists = "given"\n')

    def values(at):
        return at.runtime.catalog.get("shop.getIt").contract.input["properties"]["c"]["enum"]

    async def story(at):
        assert values(at) == ["red"]
        (folder / "given/colours.mjs").write_text(calls.exported(blue, "list"), "utf-8")
        await at.log.until("given/colours.mjs changed", "changed shop.getIt")
        assert values(at) == ["blue"]
        (folder / "given/colours.mjs").unlink()
        await at.log.until("changed shop.getIt", count=2)
        (folder / "all/_lists/colours.mjs").write_text(calls.exported(blue, "list"), "utf-8")
        await at.log.until("all/_lists/colours.mjs changed", "changed shop.getIt")
        assert values(at) == ["blue"]
        (folder / "all/shop/notes.txt").write_text("no file of it", "utf-8")
        (folder / "all/shop/More.mjs").write_text(flow("getMore"), "utf-8")
        await at.log.until("added shop.getMore")
        assert not any("notes" in line for _, line in at.log.lines)

    run(story, config=config)


def test_one_broken_file_of_a_folder_keeps_the_old_version_of_the_source(folder):
    one = first(folder, "shop/One.mjs", flow("getOne"))
    two = first(folder, "shop/Two.mjs", flow("getTwo"))

    async def story(at):
        one.write_text("export const main = {", "utf-8")
        line = await at.log.until("One.mjs", "the version from before stays", level="WARNING")
        assert line.startswith("shop/One.mjs changed: ")
        assert at.ids() == ["shop.getOne", "shop.getTwo"]
        two.write_text(flow("getTwo", "getMore"), "utf-8")
        await at.log.until("Two.mjs changed", "the version from before stays")
        one.write_text(flow("getOne", "getNew"), "utf-8")
        await at.log.until("whole again")
        assert sorted(at.ids()) == ["shop.getMore", "shop.getNew", "shop.getOne", "shop.getTwo"]

    run(story, "flowmcp:shop")


def test_a_new_file_that_is_broken_is_told_and_stops_nothing(folder):
    one = first(folder, "shop/One.mjs", flow("getOne"))

    async def story(at):
        (folder / "shop/Bad.mjs").write_text("export const main = {", "utf-8")
        await at.log.until("Bad.mjs", level="WARNING")
        one.write_text(flow("getOne", "getMore"), "utf-8")
        await at.log.until("added shop.getMore")
        return at.log.all("WARNING")

    (line,) = run(story, "flowmcp:shop")
    assert "stays" not in line


def test_a_folder_that_vanishes_and_comes_back_works(folder):
    first(folder, "shop/One.mjs", flow("getOne"))

    async def story(at):
        shutil.move(folder / "shop", folder / "elsewhere")
        await at.log.until("the version from before stays", level="WARNING")
        assert at.ids() == ["shop.getOne"]
        (folder / "elsewhere/One.mjs").write_text(flow("getOne", "getMore"), "utf-8")
        shutil.move(folder / "elsewhere", folder / "shop")
        await at.log.until("whole again")
        return at.ids()

    assert run(story, "flowmcp:shop") == ["shop.getOne", "shop.getMore"]


def test_folders_are_looked_at_as_deep_and_wide_as_they_say(folder):
    for name in ("a.mjs", "b.txt", "in/c.mjs", "in/deep/d.mjs", "skipped/e.mjs"):
        first(folder, f"tree/{name}", "")
    (folder / "tree/loop").symlink_to(folder / "tree")
    (folder / "tree/gone.mjs").symlink_to(folder / "nowhere")

    def seen(**given):
        return sorted(Path(path).name for path in stamps([Watched(folder / "tree", **given)]))

    assert seen() == ["a.mjs", "b.txt", "c.mjs", "d.mjs", "e.mjs"]
    assert seen(suffix=".mjs", skips=("skipped",)) == ["a.mjs", "c.mjs", "d.mjs"]
    assert seen(suffix=".mjs", levels=1) == ["a.mjs"]
    assert seen(suffix=".mjs", skips=("skipped",), levels=2) == ["a.mjs", "c.mjs"]


def test_a_file_written_twice_within_one_tick_of_the_clock_is_known_as_last_written(folder):
    path, watch = first(folder, "tick.txt", "one"), Watch()
    watch.settle([Watched(path)], time.time_ns())

    def write(text, at):
        path.write_text(text, "utf-8")
        os.utime(path, (at, at))
        return watch.look()

    assert [write("two", 5), write("six", 5), watch.look()] == [[], [str(path)], []]
    assert [write("six", 6), watch.look(), watch.look()] == [[], [], []]
    assert [write("two", 7), watch.look(), watch.look()] == [[], [str(path)], []]
    path.write_text("new", "utf-8")  # As if it had been written while it was read.
    watch.settle([Watched(path), Watched(folder / "none")], time.time_ns())
    assert [watch.look(), watch.look(), watch.look()] == [[], [str(path)], []]
