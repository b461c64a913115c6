"""Examples of each command, shown at the end of its help and in the reference."""

from __future__ import annotations

import typer

EXAMPLES = {
    "serve": "callpact serve --stdio -s python:shop.py",
    "list": "callpact list --search 'token price'\ncallpact list http://localhost:8420/mcp",
    "show": "callpact show shop.price",
    "call": "callpact call shop.price item=tea\n"
    "callpact call http://localhost:8420/mcp shop_price item=tea",
    "init": "callpact init my-tools",
    "install": "callpact install claude-code\n"
    "callpact install cursor --http http://localhost:8420/mcp\n"
    "callpact install codex -s python:shop.py -- --ask-first",
    "check": "callpact check catalogue/ --warnings --ignore TST",
    "curate": "callpact curate shop",
    "diff": "callpact diff old/shop.py new/shop.py\n"
    "callpact diff https://tools.example.com/mcp http://localhost:8420/mcp --json",
    "docs": "callpact docs -s python:shop.py --out reference/",
    "doctor": "callpact doctor",
    "lint": "callpact lint shop.py --info\n"
    "callpact lint catalogue/ --ignore LNT080 --fail-on error --format github",
    "lock": "callpact lock --accept files.read",
    "publish": "callpact publish --dry-run\ncallpact publish -s python:shop.py --bump minor",
    "types": "callpact types --to zod -s python:shop.py --out shop.ts",
    "libs add": "callpact libs add dayjs@1.11.13",
    "libs list": "callpact libs list",
    "libs remove": "callpact libs remove dayjs",
    "audit log": "callpact audit log --tool 'shop.*' --since 2h",
    "audit export": "callpact audit export --since 7d --csv",
    "audit show": "callpact audit show 3f2a",
    "audit tail": "callpact audit tail --gate input",
    "audit stats": "callpact audit stats --by tool --since 24h",
    "audit drift": "callpact audit drift shop.price --since 7d",
    "audit advice": "callpact audit advice --since 7d",
    "replay": "callpact replay --against python:shop.py --since 7d",
    "ask": "callpact ask 'What does tea cost?' --model openai:gpt-5-mini",
    "parse": "callpact parse answer.txt --schema offer.json --repair safe",
}


def add_examples(app: typer.Typer) -> None:
    """Give each command of the command line its examples."""
    for prefix, commands in (
        ("", app),
        *((f"{group.name} ", group.typer_instance) for group in app.registered_groups),
    ):
        for command in commands.registered_commands if commands is not None else ():
            name = command.name or getattr(command.callback, "__name__", "")
            lines = EXAMPLES.get(prefix + name, "").splitlines()
            command.epilog = "\n\n".join(f"Example: `{line}`" for line in lines) or None
