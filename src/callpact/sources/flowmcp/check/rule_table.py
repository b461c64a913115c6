"""The table of rules for FlowMCP files: code, severity by profile, meaning and remedy.

`strict` follows seeds 000 and 002 to the letter, and the wider FlowMCP specification where they are
silent. `compat` accepts and reports the deviations of real files: a finding is an error only if the
file cannot be called as intended, so code that reads a checked manifest can rely on its types.

Three codes of FlowMCP double others and are not used: SEC018 (SEC204), VAL026 (SEC020) and TST005
(SEC017). VAL027 and VAL028 belong to FlowMCP 4.3 and contradict seed 002. FlowMCP uses VAL060 to
VAL065 twice; those of `preload` have keys of their own here, as has the part of SEC101 that compat
accepts (`usual`). Findings about hooks never keep a file from being loaded. VAL080 to VAL099 and
VAL120 upwards are ours, for rules without a code in FlowMCP.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callpact.sources.base import Severity

Profile = Literal["strict", "compat"]


class CheckRule(Struct, frozen=True):
    """One row: the rule, its severity by profile, the remedy, and the specification it is from."""

    key: str
    strict: Severity | None
    compat: Severity | None
    source: str
    meaning: str
    remedy: str

    @property
    def code(self) -> str:
        """The code as it is reported."""
        return self.key.partition(":")[0]

    def severity(self, profile: Profile) -> Severity | None:
        """The severity of a breach; None if this profile does not report it."""
        return self.strict if profile == "strict" else self.compat


_SEVERITIES: dict[str, Severity | None] = {"e": "error", "w": "warning", "i": "info", "-": None}

# key | strict | compat | source | what holds | what to do
_TABLE = """
VAL001 | e | e | 002 The main Export | A schema file exports `main` | begin the file with `export const main = {`
VAL002 | e | e | 002 The main Export | `main` is an object | write `export const main = { … }`
VAL003 | e | w | FlowMCP 09 | `main` has only fields that the format knows | remove the field, or correct its spelling
VAL004 | e | e | 002 The handlers Export | `handlers` is a function | write `export const handlers = ( { sharedLists, libraries } ) => ({ … })`, or leave it out
VAL005 | w | w | FlowMCP 09 | What `handlers` returns has only names of tools and resources (said by `callpact check`) | rename the key, or remove it
VAL010 | e | e | 002 Required Fields | `namespace` is a text | name the vendor of the API, for example `namespace: 'coingecko'`
VAL011 | e | e | 002 Naming Conventions | `namespace` is in lowercase letters, digits and hyphens, and begins with a letter | rename it
VAL012 | e | e | 002 Required Fields | `name` is a text | name the schema in PascalCase
VAL013 | e | e | 002 Required Fields | `description` is a text | say in one or two sentences what the schema does
VAL014 | e | e | 002 Required Fields | `version` is `4.x.y` | bring the file to FlowMCP 4 and write `version: '4.0.0'`
VAL015 | e | e | 002 Required Fields | `root` is there if there are tools | give the base address of the API
VAL016 | e | e | 002 Required Fields | `tools` is an object | write `tools: { … }`
VAL017 | e | e | 002 Deprecated Fields | Not both `tools` and `routes` | move everything into `tools`
VAL018 | w | w | 002 Deprecated Fields | `routes` is called `tools` | rename it
VAL019 | e | w | FlowMCP 09 | The folder in `providers/` has the name of the namespace | rename one of the two
VAL020 | e | e | 002 Optional Fields | `docs` is a list of texts | write `docs: [ 'https://…' ]`
VAL021 | e | e | 002 Optional Fields | `tags` is a list of texts | write `tags: [ '…' ]`
VAL022 | e | e | 002 Optional Fields | `requiredServerParams` is a list of texts | write `requiredServerParams: [ 'NAME' ]`
VAL023 | e | e | 002 Optional Fields | `headers` is an object of texts | write `headers: { 'Accept': 'application/json' }`
VAL024 | e | e | 002 Optional Fields | `sharedLists` is a list of objects | write `sharedLists: [ { ref: '…', version: '1.0.0' } ]`
VAL025 | e | e | 002 Optional Fields | `requiredLibraries` is a list of texts | write `requiredLibraries: [ '…' ]`
VAL030 | e | w | 002 Naming Conventions | A tool's name is in camelCase | rename the tool
VAL031 | e | e | 002 Constraints | A schema has at most 8 tools | split the file
VAL032 | e | e | 002 Tool Fields | `method` is GET, POST, PUT or DELETE | write one of the four, in capitals
VAL033 | e | e | 002 Tool Fields | `path` is a text that begins with `/` | write `path: '/…'`
VAL034 | e | e | 002 Tool Fields | A tool has a description | say what the tool does; the model reads it
VAL035 | e | e | 002 Tool Fields | `parameters` is a list | write `parameters: []` for a tool without input
VAL036 | w | w | 000 No output schema | A tool declares its output | add `output: { mimeType, schema }`
VAL037 | i | i | FlowMCP 09 | `async` is reserved | it is ignored
VAL040 | e | e | FlowMCP 02 | A parameter has `position` and `z` | write `{ position: { key, value, location }, z: { primitive, options } }`
VAL041 | e | e | FlowMCP 02 | `position.key` is a text | name the parameter
VAL042 | e | e | FlowMCP 02 | `position.value` is a text | write `'{{USER_PARAM}}'`, `'{{SERVER_PARAM:NAME}}'` or a fixed text
VAL043 | e | e | FlowMCP 02 | `position.location` is insert, query or body | write one of the three
VAL044 | e | e | FlowMCP 02 | `z.primitive` is string(), number(), boolean(), enum(…), array() or object() | write one of the six
VAL045 | e | e | FlowMCP 02 | `z.options` is a list of known options with usable arguments | write min(n), max(n), length(n), optional() or default(v)
VAL046 | e | e | FlowMCP 02 | `enum()` has values | list them, separated by commas
VAL047 | e | e | FlowMCP 02 | A list is referred to as `{{list:field}}`, and only inside of `enum()` | move the reference into `enum(…)`
VAL048 | e | e | FlowMCP 02 | A list that an enum refers to is declared | add it to `sharedLists`
VAL049 | e | e | FlowMCP 02 | A field that an enum refers to is a field of its list | correct its name
VAL050 | e | w | 002 path | A parameter with `insert` has its place in the path | put `{{key}}` into the path, or send it elsewhere; as it is, only hooks see it
VAL060 | e | e | 000 MIME types | `output.mimeType` is application/json, image/png or text/plain | write one of the three
VAL061 | e | e | 000 Supported keywords | `output.schema` and everything in it is a schema of the dialect | correct it, or leave `output` out
VAL062 | e | e | 000 MIME types | The type of `output.schema` goes with the MIME type | application/json: object or array; text/plain: string; image/png: string with format base64
VAL063 | e | w | 000 Validation rules | `output.schema` has at most 4 levels | describe the deeper part in words, or flatten it in `postRequest`
VAL064 | e | e | 000 Validation rules | Only an object has `properties` | write `type: 'object'`, or remove it
VAL065 | e | e | 000 Validation rules | Only an array has `items` | write `type: 'array'`, or remove it
VAL060:preload | e | e | FlowMCP 11 | `preload` is an object | write `preload: { enabled: true, ttl: 3600 }`
VAL061:preload | e | e | FlowMCP 11 | `preload.enabled` is true or false | write one of the two
VAL062:preload | e | e | FlowMCP 11 | `preload.ttl` is a whole number of seconds above 0 | write, for example, `ttl: 3600`
VAL063:preload | w | w | FlowMCP 11 | `preload.description` is a text | write a text, or leave it out
VAL064:preload | i | - | FlowMCP 11 | A tool without parameters is a good one to cache | nothing is to be done
VAL065:preload | w | w | FlowMCP 11 | A cached tool with required parameters says how it is cached | add `preload.description`
VAL070 | e | e | 002 sharedLists | A reference to a list has a `ref` | name the list: `{ ref: 'evmChains', version: '1.0.0' }`
VAL071 | e | e | 002 sharedLists | A reference to a list has a version `x.y.z` | give the version of the list that the file was written for
VAL072 | e | e | FlowMCP 03 | A list that is referred to is there | add its file to `_lists`, name its folder (`--lists DIR`, or `lists` of the source), or correct the name
VAL072:unused | e | w | FlowMCP 03 | A list that is referred to is there, even if nothing uses it | add its file to `_lists`, name its folder (`--lists DIR`), or remove the reference
VAL073 | e | e | FlowMCP 03 | A list has the version that is referred to | adapt the file to the list and change the version
VAL074 | e | e | 002 sharedLists | A filter is `{ key, exists }`, `{ key, value }` or `{ key, in }` | write one of the three
VAL075 | w | w | FlowMCP 09 | A list that is declared is used | remove the reference
VAL076 | e | w | FlowMCP runtime | A tool has only fields that the format knows | remove the field, or correct its spelling
VAL077 | e | w | FlowMCP runtime | A parameter has only fields that the format knows | remove the field, or correct its spelling
VAL080 | e | w | 002 Two Version Axes | `schemaVersion` is there | add `schemaVersion: '1.0.0'`; that is assumed now
VAL081 | e | e | 002 Two Version Axes | `schemaVersion` is `x.y.z` | write, for example, `schemaVersion: '1.0.0'`
VAL082 | e | w | 002 Required Fields | `schemaHash` is there | let `callpact check --fix` write it
VAL083 | e | e | 002 Required Fields | `schemaHash` is eight hex digits in lower case | let `callpact check --fix` write it
VAL084 | e | e | 002 Required Fields | `schemaHash` is the hash of `main` | raise `schemaVersion` if the change is meant, and let `callpact check --fix` write the hash
VAL085 | e | e | 002 root | `root` is an address that begins with `https://`, without a user | correct the address
VAL086 | e | e | 002 root | `root` does not end with `/` | remove the slash
VAL087 | e | e | 002 method | Only POST and PUT have a body | send the parameter in the query, or change the method
VAL088 | e | w | FlowMCP 02 | A fixed value passes its own `z` | correct the value or its `z`; it is sent as it is
VAL089 | e | e | FlowMCP 02 | A server parameter that is used is declared | add its name to `requiredServerParams`
VAL090 | e | w | 002 requiredServerParams | A server parameter is written `{{SERVER_PARAM:NAME}}` | write it so; the bare name is taken as the same
VAL091 | e | w | FlowMCP 02 | A placeholder is `{{USER_PARAM}}` or `{{SERVER_PARAM:NAME}}` | write `{{USER_PARAM}}`; it is taken so, under the parameter's key
VAL092 | e | i | 002 path | A place in the path is written `{{key}}` | write it so; it is taken as the same
VAL093 | e | w | 002 Naming Conventions | A schema file is named in PascalCase with `.mjs` | rename the file
VAL094 | e | w | 002 Naming Conventions | `name` is in PascalCase | rename it
VAL095 | e | w | FlowMCP 02 | `regex()` and `values()` are no options | say it with enum(…), min(n), max(n), length(n); it is honoured now
VAL096 | w | w | 002 Constraints | `version` 3.x.y is for files on their way to 4 | bring the file to FlowMCP 4
VAL097 | e | w | 002 Naming Conventions | A tag is in lowercase letters, digits and hyphens, and begins with a letter | rename the tag
VAL098 | e | w | 002 Naming Conventions | A parameter's key is in camelCase | rename it if the API allows
VAL099 | e | e | 002 path | A place in the path has a parameter with `insert` | add the parameter, or remove the place
VAL100 | e | w | 002 Optional Fields | A tool has `meta`, its own or that of `main` | add `meta` with isReadOnly, isConcurrencySafe, isDestructive, searchHint, aliases, alwaysLoad
VAL101 | e | e | FlowMCP 19 | `meta.isReadOnly` is true or false | write one of the two
VAL102 | e | e | FlowMCP 19 | `meta.isConcurrencySafe` is true or false | write one of the two
VAL103 | e | e | FlowMCP 19 | `meta.isDestructive` is true or false | write one of the two
VAL104 | e | e | FlowMCP 19 | `meta.searchHint` is a text | write a few words that a search should find
VAL105 | e | e | FlowMCP 19 | `meta.aliases` is a list of texts | write `aliases: []` if there are none
VAL106 | e | e | FlowMCP 19 | `meta.alwaysLoad` is true or false | write one of the two
VAL107 | e | w | FlowMCP 03 | An enum does not repeat the values of a shared list | refer to the list: `enum({{list:field}})`
VAL120 | e | w | 000 Supported types | An array of `output.schema` has `items` | add `items`; anything is taken now
VAL121 | e | w | 000 Supported keywords | `output.schema` uses the keywords type, properties, items, description, nullable, enum, format | remove the keyword; it is ignored
VAL122 | e | w | 000 Supported types | A type is string, number, boolean, object or array | write `number`; it is taken so
VAL123 | e | w | FlowMCP 03 | A list has exactly the version that is referred to | change the version; lists of the same major version are taken
VAL124 | e | e | FlowMCP 19 | `meta` is an object | write `meta: { … }`, or leave it out
VAL125 | e | w | 002 Optional Fields | The fields about terms and licences are texts of their form, or null | addresses begin with http, dates are YYYY-MM-DD, languages two letters or `multi`
VAL126 | e | e | 002 Tool Definition | A tool is an object | write `name: { method, path, description, parameters, tests }`
VAL127 | e | e | own | A tool's name can be made part of an id | use letters and digits, at most 200
VAL128 | e | w | 002 Required Fields | `tools` is empty only beside resources or skills | add a tool, or remove the file
VAL129 | e | e | own | A header's name and value can be sent | letters, digits and hyphens in the name, one line of Latin-1 in the value
VAL130 | w | w | own | Two parameters that the caller gives have two keys | rename one; one argument fills both
VAL131 | e | w | FlowMCP 02 | A value has one place for what the caller gives | make a parameter of each; they are taken as arguments of their own names
VAL132 | w | w | FlowMCP 02 | An option applies to its primitive | remove it; it has no effect
VAL133 | e | w | FlowMCP 02 | A default passes its own `z` | correct the default; it is sent as it is
VAL134 | e | w | FlowMCP 02 | `enum(A,B)` has no blanks, quotes or repetitions | write the values with nothing but commas between
VAL135 | e | e | own | A file is not larger than it may be | split the file
VAL136 | w | w | 000 Format | `format` is base64, date-time or uri | use one of the three, or say it in the description
VAL137 | w | i | 000 Output definition | `output` has `mimeType` and `schema` and nothing else | move it into `schema`, or remove it
VAL138 | w | w | FlowMCP 10 | A tool has at least 3 tests | add tests
VAL139 | e | e | own | A list is referred to once | keep one of the references
VAL140 | w | w | 002 Schema File Structure | A file exports only what belongs to its kind | remove the export; it is ignored
VAL141 | e | e | 002 Handler Rules | Hooks do not use XMLHttpRequest or WebSocket | let the declared request do the work
VAL142 | e | e | own | Names in code are not written with escapes | write the name in plain letters
VAL143 | w | w | FlowMCP 13 | A resource is found by `origin` and `name` | write them instead of `database`
VAL144 | e | w | FlowMCP 03 | A list and its fields have descriptions | say what they hold
VAL145 | e | w | 002 Naming Conventions | A list's name is in camelCase | rename it
VAL146 | w | w | FlowMCP 03 | An entry has only the fields of its list | declare the field in `meta.fields`, or remove it
VAL147 | e | w | 002 Root URL requirement | `root` is there even if hooks make every request | give the base address of the API
VAL148 | e | w | 002 The main Export | The data is in `main`, not in `schema.main` | export `main` itself
VAL149 | e | w | FlowMCP 16 | The namespace `shared` is kept for lists | rename it
VAL150 | e | w | 002 Naming Conventions | `skills` is an object or a list of names like `full-audit` | correct it
VAL151 | e | e | 002 requiredServerParams | A server parameter is the name of an environment variable | use letters, digits and `_`
VAL152 | i | i | own | Every finding is reported | correct the reported ones first, then check again
VAL153 | w | w | own | `root` has no query and no fragment, as the path comes after it | move it into the path or the parameters
VAL154 | e | e | own | The number of breaches in a file is limited | correct the reported ones, then check again
VAL155 | e | e | own | A file can be read, and is UTF-8 (said by who reads it) | correct the file's rights, or save it as UTF-8
VAL156 | e | e | FlowMCP 10 | A test is an object | write `{ _description: '…', key: value }`
VAL157 | e | e | own | A text holds whole characters, no halves of them | write the character itself
VAL158 | e | w | own | No key occurs twice in an object; the last one counts | remove one of the two
VAL159 | i | i | own | A file of a catalogue is a schema file or a list (said of a folder) | nothing is to be done; it is not loaded
VAL160 | e | w | FlowMCP 02 | Each option of `z` is a text of its own | write 'optional()', 'default(5)'; they are taken so
VAL161 | w | w | 002 Handler Types | A tool's hooks are an object of `preRequest`, `executeRequest`, `postRequest` (said by `callpact check`) | write `tool: { postRequest: … }`; nothing else is called
VAL162 | e | e | 002 The main Export | The file's code leaves `main` as it is written (said by `callpact check --hooks`) | write the values themselves into `main`
VAL163 | i | i | own | Hook code is small enough to be looked at (said by `callpact check`) | move data out of the code, into shared lists
VAL164 | e | w | 002 Handler Rules | Hooks do not use `console`: they log nothing | remove it; return what is to be known
VAL165 | w | w | own | A file has tools: resources, skills and prompts of FlowMCP files are not loaded | declare tools, or leave the file out
VAL165:beside | i | i | own | A file has nothing but tools: its resources are not loaded | nothing is to be done; its tools are loaded
CAT001 | w | w | FlowMCP 20 | `registry.json` says which files of a catalogue are schema files (said of a folder) | correct it, or remove it; every file of the folder is read
CAT003 | e | e | FlowMCP 20 | A shared list that `registry.json` lists is there (said of a folder) | correct the entry, or remove it
CAT004 | e | e | FlowMCP 20 | A schema file that `registry.json` lists is there, in the catalogue (said of a folder) | correct the entry, or remove it
CAT006 | w | w | FlowMCP 20 | A schema file is listed in `registry.json` (said of a folder) | add it to the registry; it is not loaded
RES001 | e | e | FlowMCP 13 | `source` is sqlite, markdown, http, sqlite-gtfs, geo-geojson or geo-csv | write one of them
RES002 | e | e | FlowMCP 13 | A resource has a description | say what it holds
RES003 | e | e | FlowMCP 13 | `database` is a relative path that ends with `.db` | correct the path
RES004 | e | e | FlowMCP 13 | `database` does not leave its folder | remove the `..`
RES005 | e | e | 002 Constraints | A schema has at most 2 resources | split the file
RES017 | e | e | 002 Naming Conventions | A resource's name is in camelCase | rename it
RES024 | e | e | FlowMCP 13 | A resource of source http has a `url` that begins with `https://` | give it
RES025 | e | e | FlowMCP 13 | `mode` is in-memory or file-based | write one of the two
RES026 | e | e | FlowMCP 13 | `origin` is inline, project or global | write one of the three
RES027 | e | e | FlowMCP 13 | `name` is a file name in lowercase letters, digits and hyphens with the ending of its source | rename the file
RES028 | e | e | FlowMCP 13 | A resource has at most 7 queries | split the resource
RES030 | e | e | FlowMCP 13 | A resource of source sqlite-gtfs is file-based | write `mode: 'file-based'`
RES031 | e | e | FlowMCP 13 | A resource of an add-on names the add-on | write `addon: '…'`
RES037 | e | e | FlowMCP 13 | A file-based database lives in the project | write `origin: 'project'`
RES038 | e | e | FlowMCP 13 | A markdown resource has no `mode` | remove it
RES039 | e | e | FlowMCP 13 | A markdown resource has no `queries` | remove them
RES040 | w | w | FlowMCP 13 | A database is not beside the schema | use `origin: 'global'`
RES041 | e | e | FlowMCP 13 | A resource has every field of its source; there are no defaults | add the field
RES043 | e | e | FlowMCP 13 | Only geo-geojson and geo-csv have the mode url | change the mode
RES044 | e | e | FlowMCP 13 | The mode url has a `url` that begins with `https://` | give it
RES045 | e | e | FlowMCP 13 | A geo-csv by url has `parseConfig` | say how the file is read
LST001 | e | e | FlowMCP 03 | A list file exports `list` | begin the file with `export const list = {`
LST002 | e | e | FlowMCP 03 | A list has a name that no other list has | name it in `meta.name`
LST003 | e | e | FlowMCP 03 | A list has a version `x.y.z` | write `version: '1.0.0'`
LST004 | e | e | FlowMCP 03 | `meta.fields` says which fields the entries have | list them
LST005 | e | e | FlowMCP 03 | A field has a key and a type of string, number or boolean | write `{ key: '…', type: 'string', description: '…' }`
LST006 | e | e | FlowMCP 03 | A list has entries | add them
LST007 | e | e | FlowMCP 03 | An entry has every field that is not optional | add the value, or mark the field `optional: true`
LST008 | e | e | FlowMCP 03 | A value is of the type of its field | correct the value or the type
LST009 | e | e | FlowMCP 03 | A list that a list depends on is there, in that version, with what the condition asks for | add the list, or correct `dependsOn`
LST010 | e | e | FlowMCP 03 | Lists do not depend on themselves | break the circle
LST011 | e | e | FlowMCP 03 | A list depends on lists at most 3 levels deep, itself included | flatten the lists
TST001 | e | w | 002 Tool Fields | A tool has at least 1 test | add one with real values
TST001:form | e | e | 002 Tool Fields | `tests` is a list | write `tests: [ { _description: '…', key: value } ]`
TST002 | e | w | FlowMCP 10 | A test says in `_description` what it shows | add it
TST003 | e | w | FlowMCP 10 | A test gives every required parameter | add the value
TST004 | e | w | FlowMCP 10 | The values of a test pass their `z` | correct the value or the `z`
TST006 | e | w | FlowMCP 10 | A test has only keys that the caller can give | remove the key
TST007 | w | i | FlowMCP 10 | Tests use more than one value of an enum | add a test with another value
TST008 | i | - | FlowMCP 10 | Tests show optional parameters | add a test that gives one
SEC001 | e | e | 002 Handler Rules | A schema file imports nothing | use what `handlers` is given: `sharedLists`, `libraries`
SEC001:builtin | e | w | 002 Handler Rules | A schema file does not import what hooks have built in: `crypto`, `zlib` | it works here alone: name it in `requiredLibraries`, and use `libraries`
SEC002 | e | e | FlowMCP 05 | A schema file does not use `require` | use what `handlers` is given: `sharedLists`, `libraries`
SEC003 | e | e | 002 Handler Rules | Hooks do not use `eval` | write the code itself
SEC004 | e | e | 002 Handler Rules | Hooks do not use `Function` | write the code itself
SEC005 | e | e | 002 Handler Rules | Hooks make no functions of texts, by `new Function` or a `constructor` | write the code itself
SEC006 | e | e | 002 Handler Rules | Hooks do not use `process` | declare `requiredServerParams`
SEC007 | e | e | FlowMCP 05 | Hooks do not start processes | remove it
SEC008 | e | e | 002 Handler Rules | Hooks do not use `fs` | declare a resource
SEC009 | e | e | FlowMCP 05 | Hooks do not use `node:fs` | declare a resource
SEC010 | e | e | FlowMCP 05 | Hooks do not use `fs/promises` | declare a resource
SEC011 | e | e | FlowMCP 05 | Hooks do not use `globalThis` | name what is needed
SEC012 | e | e | FlowMCP 05 | Hooks do not use `global` | name what is needed
SEC013 | e | e | FlowMCP 05 | Hooks do not use `__dirname` | declare a resource
SEC014 | e | e | FlowMCP 05 | Hooks do not use `__filename` | declare a resource
SEC015 | e | e | 002 Handler Rules | Hooks do not use `setTimeout` | return the result at once
SEC016 | e | e | 002 Handler Rules | Hooks do not use `setInterval` | return the result at once
SEC017 | e | e | 002 The main Export | `main` is plain data, as JSON has it | write the value itself; code belongs into `handlers`
SEC019 | e | e | FlowMCP 05 | A list file is plain data, as JSON has it | write the values themselves
SEC020 | e | e | 002 requiredLibraries | Every library is allowed | do without it, or allow it (`--allow-library NAME`, or `libraries` of the source)
SEC020:builtin | e | w | 002 requiredLibraries | A library that hooks have built in (`crypto`, `zlib`) is allowed | under `compat` hooks have it; `strict` needs it allowed by name
SEC100 | e | e | 002 Handler Rules | Hooks do not fetch outside of `executeRequest` (said by `callpact check`, and when a hook runs) | let the declared request do the work
SEC101 | e | w | 002 Handler Types | A hook returns what its kind must return (said by `callpact check`, and when a hook runs) | `preRequest`: { struct, payload }; the others: { response }
SEC101:usual | e | w | 002 Handler Types | A hook returns all that its kind must return, not only what many files do (said by `callpact check`) | add what is missing; it is taken as it is
SEC102 | e | e | 002 Handler Rules | A hook does not change shared lists (said when a hook runs) | copy what is to be changed
SEC103 | e | e | FlowMCP 05 | A library that is allowed can be loaded (said by `callpact check --hooks`) | do without it, or see to it that it loads; as it is, tools with hooks cannot be called
SEC104 | e | e | FlowMCP 05 | The function `handlers` returns without an error (said by `callpact check --hooks`) | correct it
SEC200 | e | e | FlowMCP 05 | A list file has no functions | write the values themselves
SEC201 | e | e | FlowMCP 05 | A list file has no arrow functions | write the values themselves
SEC202 | e | e | FlowMCP 05 | A list file has no `async` or `await` | write the values themselves
SEC203 | e | e | FlowMCP 05 | A list file has no templates with `${…}` | write the text itself
SEC204 | e | e | FlowMCP 05 | A list file has nothing that schema files may not have | remove it
HSH-002 | e | e | FlowMCP hash | What is hashed is an object | give the `main` of a file
HSH-003 | e | e | FlowMCP hash | Every number that is hashed is finite | write another number, or a text
HSH-004 | e | e | FlowMCP hash | Everything that is hashed is JSON | write the value as JSON
"""


def _row(line: str) -> CheckRule:
    key, strict, compat, source, meaning, remedy = (part.strip() for part in line.split(" | "))
    return CheckRule(key, _SEVERITIES[strict], _SEVERITIES[compat], source, meaning, remedy)


RULES: dict[str, CheckRule] = {
    row.key: row for row in (_row(line) for line in _TABLE.strip().splitlines())
}
"""Every rule by its key; the key is the code, with a suffix where two rules share one code."""

ELSEWHERE = frozenset(
    {
        "CAT001",
        "CAT003",
        "CAT004",
        "CAT006",
        "VAL155",
        "VAL159",
        "VAL162",
        "SEC102",
        "SEC103",
        "SEC104",
    }
)
"""Codes that the check of a text never yields: they need the file itself, or its hooks to run."""
