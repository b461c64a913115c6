"""The workflow for CI in the guide to `callpact diff`, step by step in a real repository."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "contract-diff.md"
STEP = re.compile(
    r"- name: (\w+)\n(?:        if: .*\n)?        run: (?:\|\n((?:          .*\n)+)|(.*)\n)"
)
PRICES = """\
export const main = {
    namespace: 'prices', name: 'Prices', description: 'Prices of tokens.', version: '4.0.0',
    schemaVersion: '1.0.0', root: 'https://api.example.com',
    tools: {
        getPrice: {
            method: 'GET', path: '/price/{{id}}', description: 'Get the price of a token.',
            parameters: [ {
                position: { key: 'id', value: '{{USER_PARAM}}', location: 'insert' },
                z: { primitive: 'string()', options: [ 'max(50)' ] },
                description: 'A token by its name, as btc.'
            } ],
            output: { mimeType: 'application/json', schema: { type: 'object', properties: {
                price: { type: 'number', description: 'In USD.' } } } },
            tests: [ { _description: 'Bitcoin', id: 'btc' } ]
        }
    }
}
"""


@pytest.fixture
def project(tmp_path):
    """A clone of a repository with a catalogue, whose first version is published."""
    folder = tmp_path / "project"
    run("git init --quiet --bare --initial-branch main ../hub", folder, is_new=True)
    run("git clone --quiet ../hub .", folder)
    write(folder, PRICES)
    (folder / "test_nothing.py").write_text("def test_it(): pass\n", "utf-8")
    run("callpact publish --source catalogue/ --name shop", folder)
    run("git checkout --quiet -B main; git add .", folder)
    run("git -c user.name=A -c user.email=a@example.com commit --quiet -m First", folder)
    run("git push --quiet --set-upstream origin main", folder)
    return folder


def write(folder, text):
    (folder / "catalogue").mkdir(exist_ok=True)
    (folder / "catalogue" / "Prices.mjs").write_text(text, "utf-8")


def steps():
    text = GUIDE.read_text("utf-8")
    return {name: script or line for name, script, line in STEP.findall(text)}


def run(script, folder, *, is_new=False, code=0):
    if is_new:
        folder.mkdir()
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_steps_are_those_of_the_text():
    assert [*steps()] == ["install", "check", "lint", "test", "diff", "publish"]


def test_a_merged_change_is_published_and_pushed(project):
    wider = PRICES.replace("max(50)", "max(60)").replace("'1.0.0'", "'1.1.0'")
    write(project, wider)
    for name in ("check", "lint", "test", "diff", "publish"):
        run(steps()[name], project)
    listed = run("git show origin/main:contracts/index.json", project)
    assert '"shop-1.1.0"' in listed


def test_contracts_as_published_are_not_committed_again(project):
    before = run("git rev-parse HEAD", project)
    run(steps()["publish"], project)
    assert run("git rev-parse HEAD", project) == before


def test_a_breaking_change_ends_the_step_of_the_comparison(project):
    write(project, PRICES.replace("max(50)", "max(40)"))
    assert "maxLength 50 → 40" in run(steps()["diff"], project, code=1)
