"""Types for consumers, written from contracts: TypeScript, Zod, Pydantic, JSON Schema."""
