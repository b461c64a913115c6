"""Hooks: JavaScript of strangers, run in a sandbox within limits that the host keeps.

`Engine.open` loads a file's hooks into a `Realm`; `Pool.run` calls one from asyncio and serves
what it asks of the host. Not imported by the core: it needs the extra `callpact[hooks]`.
"""
