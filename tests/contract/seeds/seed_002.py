"""Seed 002, *Schema Format*: a FlowMCP file, its fields, its names, its limits, how it is loaded."""

from __future__ import annotations

_HOOKS = "waits for hooks: a tool that needs one is loaded, shown and disabled"
_LIBRARIES = "waits for hooks and the packs of libraries that they may use"
_RESOURCES = "waits for resources; what is declared is checked already"
_CACHE = "waits for the cache of answers; what is declared is checked already"
_WIRE = "waits for FlowMCP's metadata over MCP: searchHint, aliases, alwaysLoad"
_SEARCH = "waits for the search of tools"
_PACKAGES = "waits for packages: versions, snapshots and their comparison"

ROWS = (
    # -- Schema file structure
    ("002.file.main", "`main` is always required."),
    ("002.file.handlers-optional", "`handlers` is optional; without hooks it is left out."),
    ("002.file.handlers-function", "`handlers` is a function."),
    ("002.file.declarative", "`main` holds all of the configuration: pure data."),
    # -- Why two separate exports
    ("002.why.no-execution", "`main` is read, checked and hashed without running anything."),
    (
        "002.why.stringify",
        "The hash is made of JSON.stringify(main).",
        "divergent",
        "flowmcp.md section 3: of the canonical form, as the table of fields says",
    ),
    ("002.why.no-imports", "Schema files have no import statements."),
    ("002.why.libraries-declared", "`requiredLibraries` says which packages are needed."),
    {_HOOKS: {"002.why.injected": "Hooks get everything they need by injection."}},
    # -- The main export
    ("002.main.no-functions", "No functions."),
    ("002.main.no-dynamic-values", "No dynamic values."),
    ("002.main.no-imports", "No imports."),
    ("002.main.no-dates", "No Date objects."),
    ("002.main.no-undefined", "No undefined."),
    ("002.main.round-trip", "What does not survive JSON.parse(JSON.stringify()) is invalid."),
    # -- Required fields
    ("002.required.namespace", "namespace: a text in lowercase letters, digits and hyphens."),
    ("002.required.name", "name: a text in PascalCase."),
    ("002.required.description", "description: a text."),
    {_SEARCH: {"002.required.description-found": "It appears in tool discovery."}},
    ("002.required.version", "version: 4.x.y."),
    ("002.required.version-3", "3.x.y is accepted during migration."),
    ("002.required.schema-version", "schemaVersion: x.y.z, free per schema."),
    ("002.required.schema-version-initial", "Migrated schemas begin with 1.0.0."),
    {
        _PACKAGES: {
            "002.required.schema-version-bump": "When it is raised is for the grading rules."
        }
    },
    ("002.required.schema-hash", "schemaHash: eight hex digits."),
    (
        "002.required.schema-hash-value",
        "… the first of the SHA-256 of the canonical JSON without schemaHash itself.",
    ),
    ("002.required.schema-hash-generated", "It is generated, not written by hand."),
    {_PACKAGES: {"002.required.schema-hash-snapshot": "It names the snapshots of a schema."}},
    ("002.required.root", "root: the address of all tools."),
    ("002.required.root-resources", "root is not required where there are only resources."),
    ("002.required.tools", "tools: an object, at most 8, names in camelCase."),
    ("002.required.tools-empty", "tools may be {} beside resources or skills."),
    # -- Two version axes
    ("002.axes.spec", "version is that of FlowMCP: its major number is frozen."),
    ("002.axes.schema", "schemaVersion is that of the content: free."),
    (
        "002.axes.example",
        "The example header has the schemaHash 'a1b2c3d4'.",
        "divergent",
        "flowmcp.md section 24, row 1: a hash that is not the file's is an error",
    ),
    # -- Optional fields
    ("002.optional.docs", "docs: a list of texts; informational."),
    ("002.optional.terms-of-service", "termsOfService: an address or null; informational."),
    ("002.optional.terms-checked-at", "termsOfServiceCheckedAt: YYYY-MM-DD or null."),
    ("002.optional.terms-language", "termsOfServiceLanguage: two letters, 'multi' or null."),
    ("002.optional.data-license", "dataLicense: an address or null."),
    ("002.optional.data-license-name", "dataLicenseName: a text or null."),
    ("002.optional.tags", "tags: a list of texts, for finding tools."),
    ("002.optional.required-server-params", "requiredServerParams: a list of texts."),
    ("002.optional.required-libraries", "requiredLibraries: a list of texts."),
    ("002.optional.headers", "headers: an object, applied to all tools."),
    ("002.optional.headers-override", "The headers of a tool override them."),
    ("002.optional.shared-lists", "sharedLists: a list of objects."),
    ("002.optional.resources", "resources: an object of at most 2, names in camelCase."),
    ("002.optional.meta", "meta: required, though it stands among the optional fields."),
    {_WIRE: {"002.optional.meta-served": "It is the metadata of all tools over MCP."}},
    ("002.optional.defaults", "Without optional fields nothing is missing."),
    # -- Deprecated fields
    ("002.deprecated.routes", "routes: an alias of tools, with a warning."),
    ("002.deprecated.both", "tools and routes together are an error."),
    (
        "002.deprecated.timeline",
        "A loud warning in 3.1.0 and an error in 3.2.0.",
        "divergent",
        "design.md section 6, ruling 1: it stays an alias with a warning",
    ),
    # -- Field details
    ("002.namespace.valid", "The seed's five namespaces are valid."),
    ("002.namespace.invalid", "Capitals and underscores are not allowed."),
    (
        "002.namespace.qualified",
        "The full name of a tool is namespace/schemaFile::tool.",
        "divergent",
        "flowmcp.md section 24, row 19: the id is namespace.name; this form is taken wherever an id is",
    ),
    ("002.root.prepended", "root stands before the path of every tool."),
    ("002.root.https", "root MUST be https."),
    ("002.root.no-slash", "root MUST NOT end with a slash."),
    ("002.root.examples", "The seed's two addresses are valid."),
    ("002.server-params.declared", "They MUST be available at run time."),
    (
        "002.server-params.checked-first",
        "They are checked before the tools are exposed.",
        "divergent",
        "design.md section 6, ruling 7: shown as disabled with the key's name; a call gets E006",
    ),
    ("002.server-params.injected", "They are put in for {{SERVER_PARAM:NAME}}."),
    ("002.libraries.allowed", "Libraries are loaded from an allowlist."),
    ("002.libraries.rejected", "A schema with another library is rejected when it is loaded."),
    ("002.libraries.none", "requiredLibraries: [] needs none."),
    {_LIBRARIES: {"002.libraries.injected": "They are injected into `handlers`."}},
    ("002.headers.sent", "Default headers go with every request."),
    ("002.lists.reference", "An entry of sharedLists names the list and its version."),
    ("002.lists.filter", "It may have a filter: {key, exists: true}."),
    # -- Tool definition
    ("002.tool.name", "The key is the tool's name, in camelCase."),
    ("002.tool.mcp-name", "It becomes part of the tool's name over MCP."),
    ("002.tool.method", "method: GET, POST, PUT or DELETE; required."),
    ("002.tool.path", "path: a text; required."),
    ("002.tool.description", "description: a text that the model reads; required."),
    ("002.tool.parameters", "parameters: a list; required, may be empty."),
    ("002.tool.output", "output: optional."),
    ("002.tool.preload", "preload: optional, an object."),
    {_CACHE: {"002.tool.preload-caches": "With it, answers are cached."}},
    ("002.tool.tests", "tests: at least 1 per tool; required."),
    # -- method
    ("002.method.get", "GET has no body."),
    ("002.method.post", "POST has a body."),
    ("002.method.put", "PUT has a body."),
    ("002.method.delete", "DELETE has no body."),
    ("002.method.body-at-load", "A body parameter of GET or DELETE is an error at load."),
    # -- path
    ("002.path.appended", "path is appended to root."),
    ("002.path.placeholder", "{{key}} is replaced by the insert parameter of that key."),
    ("002.path.several", "There may be several."),
    ("002.path.needs-parameter", "Every {{key}} MUST have an insert parameter; checked at load."),
    # -- The handlers export, its types, its rules
    {
        _HOOKS: {
            "002.handlers.map": "It maps names of tools to hooks.",
            "002.handlers.called-once": "It is called once, with {sharedLists, libraries}.",
            "002.handlers.shared-lists": "sharedLists: the resolved lists by name; mutations throw TypeError.",
            "002.handlers.example": "The seed's example with lists and libraries.",
            "002.handler.pre-request": "preRequest changes the request before it is sent.",
            "002.handler.execute-request": "executeRequest stands in for the request.",
            "002.handler.post-request": "postRequest changes the answer.",
            "002.handler.pre-request-shape": "preRequest gets and must return {struct, payload}.",
            "002.handler.execute-request-shape": "executeRequest gets {struct, payload}, must return {response}.",
            "002.handler.post-request-shape": "postRequest gets {response, struct, payload}, must return {response}.",
            "002.execute.skips-http": "With executeRequest no request is sent by the runtime.",
            "002.execute.example": "The seed's XML example, which calls fetch.",
            "002.per-call.struct": "struct: address, method, headers, body; preRequest may change it.",
            "002.per-call.payload": "payload: the checked arguments.",
            "002.per-call.response": "response: the parsed answer, for postRequest.",
            "002.per-call.no-server-params": "Hooks never see server parameters.",
            "002.per-call.no-user-params": "The old userParams and context are gone.",
            "002.rules.fetch": "Hooks MUST NOT use fetch.",
            "002.rules.lists": "4. sharedLists holds the resolved lists.",
            "002.rules.pure": "6. Hooks MUST be pure.",
            "002.rules.return-shape": "7. A result without its keys is a runtime error.",
        },
        _LIBRARIES: {
            "002.handlers.libraries": "libraries: the loaded packages by name.",
            "002.rules.libraries": "5. libraries holds the approved packages.",
        },
        _RESOURCES: {
            "002.rules.resources": "8. Hooks of resources are nested one level deeper.",
            "002.optional.resources-served": "Resources can be asked for.",
        },
    },
    ("002.rules.optional", "1. Tools without hooks make the request as it is declared."),
    ("002.rules.no-imports", "2. No import, no require, no dynamic import(): rejected."),
    (
        "002.rules.no-globals",
        "3. No fs, process, eval, Function, setTimeout, setInterval, XMLHttpRequest, WebSocket.",
    ),
    # -- Naming conventions
    ("002.naming.namespace", "Namespace: ^[a-z][a-z0-9-]*$."),
    ("002.naming.schema", "Schema name: ^[A-Z][a-zA-Z0-9]*$."),
    ("002.naming.file", "Schema file: ^[A-Z][a-zA-Z0-9]*\\.mjs$."),
    ("002.naming.tool", "Tool name: ^[a-z][a-zA-Z0-9]*$."),
    ("002.naming.resource", "Resource name: ^[a-z][a-zA-Z0-9]*$."),
    ("002.naming.skill", "Skill name: ^[a-z][a-z0-9-]{0,63}$."),
    ("002.naming.parameter", "Parameter key: ^[a-z][a-zA-Z0-9]*$."),
    ("002.naming.list", "Shared list: ^[a-z][a-zA-Z0-9]*$."),
    ("002.naming.tag", "Tag: ^[a-z][a-z0-9-]*$."),
    # -- Constraints
    ("002.constraint.tools", "At most 8 tools."),
    ("002.constraint.resources", "At most 2 resources."),
    ("002.constraint.version", "Major version 4; 3 with a warning."),
    ("002.constraint.tools-and-routes", "tools and routes never together."),
    ("002.constraint.namespace", "The pattern of namespaces."),
    ("002.constraint.tool-name", "The pattern of tool names."),
    ("002.constraint.root-https", "Root: https only."),
    ("002.constraint.root-required", "Root: required where there are tools, else optional."),
    ("002.constraint.root-slash", "Root: no slash at the end."),
    ("002.constraint.json", "main survives a round trip through JSON."),
    ("002.constraint.imports", "No imports at all."),
    ("002.constraint.libraries", "Libraries of the allowlist only."),
    # -- Loading sequence
    ("002.loading.read", "1. The file is read as text before anything runs."),
    ("002.loading.scan", "2. The text is scanned; a hit rejects the file."),
    (
        "002.loading.scan-target",
        "The scan looks at the text of the file.",
        "divergent",
        "design.md section 6, ruling 1: at its code; comments and strings are no code",
    ),
    (
        "002.loading.import",
        "3. The file is imported.",
        "divergent",
        "design.md section 6, ruling 2: `main` is never executed to be read, checked or hashed",
    ),
    ("002.loading.extract", "4. `main` is taken from it."),
    ("002.loading.validate", "5. `main` is validated; routes become tools."),
    ("002.loading.lists", "6. sharedLists are resolved to data, deeply frozen."),
    ("002.loading.libraries", "7. Each library is checked against the allowlist."),
    {_LIBRARIES: {"002.loading.libraries-loaded": "… and loaded."}},
    {
        _HOOKS: {
            "002.loading.handlers": "8. handlers() is called, and what it returns is registered."
        }
    },
    ("002.loading.register", "9. Each tool can be called; without hooks it makes its request."),
    (
        "002.loading.order",
        "The steps run in this order, and the first failure ends them.",
        "divergent",
        "design.md section 6, ruling 2: nothing is imported, so that all findings are told at once",
    ),
    # -- Complete example
    (
        "002.example.incomplete",
        "The complete example has no schemaVersion, schemaHash, meta and tests.",
        "divergent",
        "flowmcp.md section 24, rows 1 to 4: warnings under compat, but a tool without tests is an error",
    ),
    ("002.example.two-exports", "main is data, handlers a function."),
    ("002.example.two-tools", "Two tools share root and path, and differ in their query."),
    ("002.example.fixed", "Fixed parameters are invisible and sent."),
    ("002.example.user", "User parameters are checked for their length."),
    ("002.example.server", "The key comes from the environment."),
    ("002.example.list", "The list is filtered to chains that have an Etherscan alias."),
    ("002.example.no-libraries", "It needs no libraries."),
    {_HOOKS: {"002.example.post-request": "postRequest flattens the answer of getSourceCode."}},
    ("002.example.no-hook", "getContractAbi has no hook: the raw answer is returned."),
    ("002.example.output", "getContractAbi declares its output."),
    ("002.example.no-imports", "There are no imports."),
)
