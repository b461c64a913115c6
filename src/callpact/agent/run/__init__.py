"""One run of an agent: the loop, attempts at a reply, tool calls, pauses, streams."""
