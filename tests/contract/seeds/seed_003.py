"""Seed 003, *Output schema*: the contract of an agent's final answer."""

from __future__ import annotations

ROWS = (
    # -- What outputSchema does
    (
        "003.declare.builder",
        "Agent.create({provider, model}).system(…).outputSchema(…).build().",
        "divergent",
        "Agent(model, system=…).output_schema(…): each method gives a new agent, nothing is built",
    ),
    ("003.declare.one-declaration", "One declaration instructs, parses and narrows."),
    ("003.declare.answer-is-json", "The final answer must be JSON that matches the schema."),
    ("003.declare.sample", "The seed's first example, status and items."),
    ("003.instruct.auto", "The instruction is injected into the system prompt by itself."),
    ("003.instruct.text", "Its default text, to the letter."),
    ("003.instruct.description", "The output shape is what the schema describes itself with."),
    ("003.instruct.parser-description", "… or the parser's field description."),
    ("003.parse.json-then-parser", "The answer is parsed as JSON, then given to parser.parse."),
    ("003.parse.raises", "If either step fails, OutputSchemaError with rawOutput is raised."),
    ("003.type.narrowed", "runTyped gives T, which flows from the parser's signature."),
    # -- Two access points
    ("003.access.run-typed", "runTyped runs, parses and narrows in one call."),
    ("003.access.parse-output", "parseOutput takes a raw answer; it is synchronous."),
    ("003.access.parse-output-raises", "parseOutput always throws on failure."),
    ("003.access.parse-output-async", "parseOutputAsync is the same with outputFallback."),
    ("003.access.pause", "runTyped throws if the run pauses."),
    ("003.access.resume", "run() and parseOutput() after resume where pauses are expected."),
    # -- Custom instruction
    ("003.instruct.override", "options.instruction replaces the generated text."),
    ("003.instruct.name", "options.name is the injection's id, output-schema by default."),
    ("003.instruct.name-in-events", "Diagnostic events tell agents apart by it."),
    # -- Two-stage error reporting
    ("003.error.stage", "stage is 'json-parse' or 'schema-validate'."),
    ("003.error.json-parse", "Prose, fences and other non-JSON are json-parse."),
    ("003.error.schema-validate", "A missing field or a wrong enum is schema-validate."),
    ("003.error.raw-output", "rawOutput is the agent's actual output."),
    ("003.error.cause", "cause carries the validator's own detailed error."),
    ("003.error.advice", "On json-parse: tighten the instruction, or wire a fallback."),
    # -- Graceful recovery
    ("003.fallback.value-either-way", "The caller gets a typed value, not an exception."),
    ("003.fallback.primary", "Tier 1: the model's own schema-valid JSON."),
    ("003.fallback.function", "Tier 2: fallback(err, raw) runs when validation throws."),
    ("003.fallback.revalidated", "Its return is validated again."),
    ("003.fallback.canned", "Tier 3: a static value; it never throws when set."),
    (
        "003.fallback.canned-at-build",
        "The canned value is validated at build time.",
        "divergent",
        "there is no build(): it is validated where output_fallback is called, which is earlier",
    ),
    ("003.fallback.async-only", "Only runTyped and parseOutputAsync engage it."),
    ("003.fallback.needs-schema", "outputFallback without outputSchema first throws."),
    ("003.strict.same-turn", "Re-prompting within the same turn is the strict output's."),
    # -- Duck-typed parser
    ("003.parser.structural", "Anything with parse(value) works."),
    (
        "003.parser.zod",
        "A Zod object is a parser as it is.",
        "divergent",
        "Python has Pydantic models, TypeAdapters, dataclasses, TypedDicts and JSON Schemas",
    ),
    ("003.parser.wrapped", "{parse, description} wraps the validator of another library."),
    ("003.parser.hand-written", "A hand-written parse with its own errors."),
    ("003.parser.gets-json", "The parser is called with the JSON-parsed value."),
    ("003.parser.whatever-it-raises", "Whatever it throws becomes the cause."),
    # -- Composing with skills, instructions, memory
    ("003.compose.one-injection", "outputSchema is one Injection alongside everything else."),
    ("003.compose.order", "Order does not matter."),
    ("003.compose.per-iteration", "All active Injections are resolved per iteration."),
    ("003.compose.always-on", "Every iteration's system slot has it, the final one too."),
    ("003.compose.sample", "instruction, skills, memory and outputSchema in one agent."),
    # -- Anti-patterns
    ("003.anti.tool-results", "outputSchema is not for intermediate tool results."),
    ("003.anti.twice", "A second outputSchema throws."),
    ("003.anti.two-agents", "Different shapes per call are two agents."),
    ("003.anti.shape-in-lockstep", "The described shape stays in lockstep with the parser."),
    # -- Next steps
    ("003.strict.no-iteration", "A failed validation re-prompts without a loop iteration."),
    ("003.strict.ephemeral", "What is said to correct the model is ephemeral."),
    ("003.strict.stuck-loop", "A model that fails alike again is found stuck."),
    ("003.flow.one-tool", "A multi-step procedure with branches and pauses is one tool."),
)
