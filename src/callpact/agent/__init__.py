"""An agent's typed final answer: instruct, run, read, judge, ask again, fall back.

`Agent` is the door; the modules below it stand alone. Nothing here opens a connection: models come
through the two methods of `model.Model`.
"""
