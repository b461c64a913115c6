"""Answers in the manner of real models, each with the value that it says, or with none.

Made from a seed, so that a test and a benchmark see the same ones. Not a test.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel


class Line(BaseModel):
    """One line of an order."""

    sku: str
    count: int


class Order(BaseModel):
    """An order with its lines."""

    customer: str
    paid: bool
    note: str | None
    lines: list[Line]


class Verdict(BaseModel):
    """A label with a score and the reason for it."""

    label: Literal["spam", "ham", "unsure"]
    score: float
    reason: str


class Place(BaseModel):
    """A place on the map."""

    name: str
    lat: float
    lon: float
    tags: list[str]


class Reply(NamedTuple):
    """`value` is the JSON that the text says; `NONE` if it does not say one value for certain."""

    family: str
    text: str
    shape: Any
    value: Any


NONE: Any = object()
"""The text was cut, or says two things."""

_NAMES = ["Ada", "Søren", "李雷", "O'Neil", "Zoë & Co.", 'the "Dude"', "María-José"]
_WORDS = [
    "late",
    "refund",
    "order",
    "the",
    "was",
    "by",
    "and",
    "customer",
    "asked",
    "for",
    "of",
    "urgent",
    "paid",
    "twice",
    "box",
    "blue",
]
_LEADS = [
    "Sure! Here is the JSON you asked for:",
    "Here's the result:",
    "Based on the text, the answer is as follows.",
    "Answer:",
    "**Output**",
    "## Result\n\nI checked each field (see [1]).",
    "Okay, let me do that. The output should be JSON.",
    "Voilà le résultat :",
    "结果如下：",
]
_TAILS = [
    "Let me know if you need anything else!",
    "Note: I assumed that the amounts are in euros (EUR).",
    "I hope this helps 🙂",
    "- `count` is an integer\n- `paid` is a boolean",
    "Explanation: the score is in [0, 1), as required.",
]


def replies(seed: int, rounds: int) -> Iterator[Reply]:
    """`rounds` texts of each family."""
    for name in FAMILIES:
        yield from replies_of(name, seed, rounds)


def replies_of(name: str, seed: int, rounds: int) -> Iterator[Reply]:
    """`rounds` texts of one family."""
    family, chance = FAMILIES[name], random.Random(f"{seed}:{name}")
    for _ in range(rounds):
        text, shape, value = family(chance)
        yield Reply(name, text, shape, value)


def text_of(chance: random.Random) -> str:
    words = " ".join(chance.choices(_WORDS, k=chance.randint(3, 14)))
    return words[0].upper() + words[1:] + chance.choice([".", "", "!", " (50% off)", ": yes"])


def value_of(chance: random.Random, shape: Any) -> Any:
    """A value of a shape, as JSON data."""
    if shape is Line:
        return {"sku": f"A-{chance.randint(1, 999)}", "count": chance.randint(0, 90)}
    if shape is Order:
        return {
            "customer": chance.choice(_NAMES),
            "paid": chance.random() < 0.5,
            "note": chance.choice([None, text_of(chance)]),
            "lines": [value_of(chance, Line) for _ in range(chance.randint(0, 4))],
        }
    if shape is Verdict:
        return {
            "label": chance.choice(["spam", "ham", "unsure"]),
            "score": round(chance.random(), 2),
            "reason": text_of(chance),
        }
    if shape is Place:
        return {
            "name": chance.choice(_NAMES),
            "lat": round(chance.uniform(-90, 90), 4),
            "lon": round(chance.uniform(-180, 180), 4),
            "tags": chance.sample(_WORDS, 2),
        }
    return [value_of(chance, Line) for _ in range(chance.randint(2, 5))]


_SHAPES = [Order, Verdict, Place]


def pick(chance: random.Random) -> tuple[Any, Any]:
    shape = chance.choice(_SHAPES)
    return shape, value_of(chance, shape)


def other(chance: random.Random, shape: Any) -> Any:
    """A value of another shape."""
    return value_of(chance, chance.choice([each for each in _SHAPES if each is not shape]))


def written(chance: random.Random, value: Any) -> str:
    return json.dumps(value, indent=chance.choice([None, 2, 4]), ensure_ascii=chance.random() < 0.3)


def fenced(chance: random.Random, text: str) -> str:
    mark = chance.choice(
        ["```json\n{}\n```"] * 4 + ["```\n{}\n```", "```JSON\n{}```", "~~~json\n{}\n~~~"]
    )
    return mark.replace("{}", text)


def dressed(chance: random.Random, text: str) -> str:
    """A text with a fence and with prose around it, or without."""
    if chance.random() < 0.7:
        text = fenced(chance, text)
    if chance.random() < 0.7:
        text = f"{chance.choice(_LEADS)}\n\n{text}"
    if chance.random() < 0.4:
        text = f"{text}\n\n{chance.choice(_TAILS)}"
    return text


Made = tuple[str, Any, Any]


def _plain(chance: random.Random) -> Made:
    shape, value = pick(chance)
    return written(chance, value), shape, value


def _dressed(chance: random.Random) -> Made:
    shape, value = pick(chance)
    return dressed(chance, written(chance, value)), shape, value


def _thinking(chance: random.Random) -> Made:
    shape, value = pick(chance)
    tag = chance.choice(["think", "thinking", "reasoning", "scratchpad"])
    drafts = "\n".join(
        f"Maybe {written(chance, value_of(chance, shape))}? Hmm, {text_of(chance)}"
        for _ in range(2)
    )
    opening = f"<{tag}>\n" if chance.random() < 0.8 else ""
    return f"{opening}{drafts}\n</{tag}>\n\n{dressed(chance, written(chance, value))}", shape, value


def _channels(chance: random.Random) -> Made:
    shape, value = pick(chance)
    draft = written(chance, value_of(chance, shape))
    marks = chance.choice(
        [
            (
                "<|channel|>analysis<|message|>",
                "<|end|><|start|>assistant<|channel|>final<|message|>",
            ),
            ("<|channel|>analysis<|message|>", "<|channel|>final <|constrain|>JSON<|message|>"),
            ("<|begin_of_thought|>", "<|end_of_thought|>\n<|begin_of_solution|>"),
            ("◁think▷", "◁/think▷"),
            ("[THINK]", "[/THINK]"),
        ]
    )
    return f"{marks[0]}I try {draft} first.{marks[1]}{written(chance, value)}", shape, value


def _input_echoed(chance: random.Random) -> Made:
    shape, value = pick(chance)
    given = written(chance, other(chance, shape))
    lead = chance.choice(["The input is", "Given", "For the record", "You sent"])
    answer = dressed(chance, written(chance, value))
    return (
        f"{lead} {fenced(chance, given) if chance.random() < 0.5 else given}\n\n{answer}",
        shape,
        value,
    )


def _inline_parts(chance: random.Random) -> Made:
    shape, value = pick(chance)
    key, part = chance.choice(list(value.items()))
    shown = json.dumps({key: part})
    mark = chance.choice(["`{}`", "{}", '"{}"'])
    lead = f"First I set {mark.replace('{}', shown)}, as in [2]. Then items[0] and `[]`."
    return f"{lead}\n\n{dressed(chance, written(chance, value))}", shape, value


def _template_first(chance: random.Random) -> Made:
    shape, value = pick(chance)
    holes = chance.choice(
        [
            lambda k: f"<{k}>",
            lambda k: f"<{k} as int>",
            lambda _k: "...",
            lambda _k: "string",
            lambda k: f"<your {k} here>",
        ]
    )
    form = "{" + ", ".join(f'"{key}": {holes(key)}' for key in value) + "}"
    return f"The format is {form}.\n\n{dressed(chance, written(chance, value))}", shape, value


def _schema_first(chance: random.Random) -> Made:
    shape, value = pick(chance)
    schema = json.dumps(shape.model_json_schema(), indent=chance.choice([None, 2]))
    return (
        f"The schema:\n\n{fenced(chance, schema)}\n\nAn instance:\n\n{fenced(chance, written(chance, value))}",
        shape,
        value,
    )


def _restated(chance: random.Random) -> Made:
    shape, value = pick(chance)
    again = written(chance, value)
    return (
        f"{dressed(chance, written(chance, value))}\n\nFinal answer:\n{chance.choice([again, fenced(chance, again)])}",
        shape,
        value,
    )


def _code_first(chance: random.Random) -> Made:
    shape, value = pick(chance)
    code = chance.choice(
        [
            'rows = [r for r in data if r["ok"]]\nresult = {"n": len(rows), "first": rows[0]}\nprint(result)',
            'def f(x):\n    return {"sum": x[0] + 1}\n\nfor i in [1, 2, 3]:\n    print(f(i))',
            "const f = (x) => { return { ok: x.length > 0, items: [x] }; };",
        ]
    )
    language = "js" if code.startswith("const") else "python"
    return (
        f"```{language}\n{code}\n```\n\nOutput:\n\n{fenced(chance, written(chance, value))}",
        shape,
        value,
    )


def _python(chance: random.Random) -> Made:
    shape, value = pick(chance)
    text = repr(value)
    wrap = chance.choice(["{}", "```python\n{}\n```", "result = {}", "```python\nresult = {}\n```"])
    return wrap.replace("{}", text), shape, value


def _sloppy(chance: random.Random) -> Made:
    """Trailing commas, comments, bare keys, missing commas at line ends, literals of Python."""
    shape, value = pick(chance)
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    for at, line in enumerate(lines):
        kind = chance.randrange(6)
        if (
            kind == 0
            and line.endswith(('"', "e", "l", "}", "]"))
            and lines[at + 1 : at + 2] != []
            and lines[at + 1].strip()[0] in "}]"
        ):
            lines[at] = line + ","
        elif kind == 1 and line.endswith(","):
            lines[at] = line + chance.choice(["  // as asked", " # checked", " /* ok */"])
        elif kind == 2 and line.strip().startswith('"') and '": ' in line:
            key, _, rest = line.partition('": ')
            lines[at] = key.replace('"', "", 1) + ": " + rest
        elif kind == 3 and line.endswith(('",', "true,", "null,")):
            lines[at] = line[:-1]
        elif kind == 4:
            for word, spelling in (("true", "True"), ("false", "False"), ("null", "None")):
                if line.rstrip(",").endswith(f": {word}"):
                    lines[at] = line.replace(f": {word}", f": {spelling}")
    return dressed(chance, "\n".join(lines)), shape, value


def _typographic(chance: random.Random) -> Made:
    shape, value = Verdict, value_of(chance, Verdict)
    text = json.dumps(value, indent=2, ensure_ascii=False)
    marks = iter("“”" * text.count('"'))
    return "".join(next(marks) if mark == '"' else mark for mark in text), shape, value


def _raw_breaks(chance: random.Random) -> Made:
    shape, value = Verdict, value_of(chance, Verdict)
    value["reason"] = f"{text_of(chance)}\n\n- {text_of(chance)}\n- {text_of(chance)}"
    text = json.dumps(value, indent=2, ensure_ascii=False).replace("\\n", "\n")
    return dressed(chance, text), shape, value


def _inner_quotes(chance: random.Random) -> Made:
    shape, value = Verdict, value_of(chance, Verdict)
    value["reason"] = f'It says "{chance.choice(_WORDS)} {chance.choice(_WORDS)}" in the subject'
    text = json.dumps(value, indent=2, ensure_ascii=False).replace('\\"', '"')
    return dressed(chance, text), shape, value


def _rows(chance: random.Random) -> Made:
    value = value_of(chance, list)
    between = chance.choice(
        ["\n", "\n\n", ",\n", "\n- ", "\n```\n```json\n", "</tool_call>\n<tool_call>"]
    )
    text = between.join(json.dumps(each) for each in value)
    if "```" in between:
        text = f"```json\n{text}\n```"
    elif "tool" in between:
        text = f"<tool_call>{text}</tool_call>"
    elif between == "\n- ":
        text = f"- {text}"
    return f"Here they are:\n\n{text}\n", list[Line], value


def _list(chance: random.Random) -> Made:
    value = value_of(chance, list)
    first = f"The first is {json.dumps(value[0])}.\n\n" if chance.random() < 0.5 else ""
    return first + dressed(chance, written(chance, value)), list[Line], value


def _tagged(chance: random.Random) -> Made:
    shape, value = pick(chance)
    tag = chance.choice(["answer", "output", "json", "result", "final_answer", "response"])
    return f"{text_of(chance)}\n<{tag}>{written(chance, value)}</{tag}>", shape, value


def _boxed(chance: random.Random) -> Made:
    shape, value = pick(chance)
    text = written(chance, value)
    wrap = chance.choice(["$$\\boxed{{}}$$", "\\boxed{\n{}\n}", "The answer is \\boxed{ {} }."])
    return wrap.replace("{}", text), shape, value


def _escaped(chance: random.Random) -> Made:
    shape, value = pick(chance)
    text = json.dumps(json.dumps(value))
    return chance.choice(["{}", "```json\n{}\n```"]).replace("{}", text), shape, value


def _in_code(chance: random.Random) -> Made:
    shape, value = pick(chance)
    return f"The answer is `{json.dumps(value)}`, as {text_of(chance)}", shape, value


def _in_program(chance: random.Random) -> Made:
    shape, value = pick(chance)
    language = chance.choice(["yaml", "javascript", "python", "plaintext", "bash"])
    return f"```{language}\n{written(chance, value)}\n```", shape, value


def _listed_points(chance: random.Random) -> Made:
    shape, value = pick(chance)
    points = "\n".join(
        f"{n}. `{key}` is `{json.dumps(part)}`" for n, (key, part) in enumerate(value.items(), 1)
    )
    return f"{points}\n\nTherefore:\n\n{dressed(chance, written(chance, value))}", shape, value


# --- texts that do not say one value ----------------------------------------------------------


def _cut(chance: random.Random) -> Made:
    shape, value = pick(chance)
    text = written(chance, value)
    cut = text[: chance.randrange(1, len(text) - 1)]
    wrap = chance.choice(["{}", "```json\n{}", "Sure:\n\n{}", "```json\n{}\n```"])
    return wrap.replace("{}", cut), shape, NONE


def _cut_rows(chance: random.Random) -> Made:
    text = "\n".join(json.dumps(each) for each in value_of(chance, list))
    start = text.rindex("\n") + 1
    return text[: chance.randrange(start + 1, len(text) - 1)], list[Line], NONE


def _two(chance: random.Random) -> Made:
    shape, value = pick(chance)
    another = value_of(chance, shape)
    if another == value:
        another["extra"] = 1
    wraps = [
        *("`{}`", "{}", '"{}"', "'{}'", "**{}**", "({})", "<answer>{}</answer>", "<!-- {} -->"),
        *("```json\n{}\n```", "```python\n{}\n```", "```js\nconst x = {};\n```", "```{}```"),
        *("~~~\n{}\n~~~", "\n> {}\n", "\n- {}\n", "\\boxed{{}}", "f({})", "| {} |"),
    ]
    one, two = (chance.choice(wraps).replace("{}", json.dumps(each)) for each in (value, another))
    joint = chance.choice(
        ["\nor\n", "\nDraft above, final below:\n", ", not ", "\n\nFor example ", "\n"]
    )
    return f"Answer: {one}{joint}{two}", shape, NONE


def _wrong_brackets(chance: random.Random) -> Made:
    value = value_of(chance, Order)
    value["lines"] = [value_of(chance, Line) for _ in range(3)]
    text = json.dumps(value)
    kind = chance.randrange(4)
    if kind == 0:
        text += "}"
    elif kind == 1:
        text = text.replace("}]", "]", 1)
    elif kind == 2:
        text = text.replace("]}", "}", 1)
    else:
        text = text.replace("}, {", "}}, {", 1)
    return text, Order, NONE


def _broken_answer(chance: random.Random) -> Made:
    shape, value = Line, value_of(chance, Line)
    example = json.dumps(value_of(chance, Line))
    broken = json.dumps(value).replace(f'"count": {value["count"]}', '"count": about 7')
    parts = [f"Answer: {broken}", f"Example: {example}"]
    chance.shuffle(parts)
    return "\n".join(parts), shape, NONE


def _no_answer(chance: random.Random) -> Made:
    text = chance.choice(
        [
            "I am sorry, I cannot help with that.",
            f"See [1] and [2]: {text_of(chance)}",
            "{name} is {{age}}",
        ]
    )
    return text, chance.choice([*_SHAPES, list[int]]), NONE


FAMILIES: dict[str, Callable[[random.Random], Made]] = {
    "plain": _plain,
    "fence and prose": _dressed,
    "thinking in tags": _thinking,
    "thinking in channels": _channels,
    "input echoed": _input_echoed,
    "parts shown before": _inline_parts,
    "template before": _template_first,
    "schema before": _schema_first,
    "said twice": _restated,
    "program before": _code_first,
    "as Python writes it": _python,
    "commas, comments, bare keys": _sloppy,
    "typographic quotes": _typographic,
    "raw line breaks": _raw_breaks,
    "bare quotes in strings": _inner_quotes,
    "rows for a list": _rows,
    "list": _list,
    "tags": _tagged,
    "LaTeX box": _boxed,
    "JSON in a string": _escaped,
    "inline code": _in_code,
    "fence of a language": _in_program,
    "points before": _listed_points,
    "cut": _cut,
    "cut rows": _cut_rows,
    "two answers": _two,
    "wrong brackets": _wrong_brackets,
    "broken answer, whole example": _broken_answer,
    "no answer": _no_answer,
}
