"""callpact: every tool an AI agent can call, under one contract."""

from callpact.catalog import Catalog
from callpact.envelope import ResponseEnvelope, unwrap
from callpact.errors import ToolError
from callpact.runtime import Runtime
from callpact.tool import Context, Contract, Tool
