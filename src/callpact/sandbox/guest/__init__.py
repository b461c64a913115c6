"""The guest of the sandbox: QuickJS as a WebAssembly module, its memory and its calls."""
