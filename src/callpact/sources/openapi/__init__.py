"""Tools of OpenAPI documents: 3.0, 3.1, 3.2 and Swagger 2.0, JSON and YAML.

`openapi_document` reads, `operations` is the frozen data of one operation, `openapi_source` builds
tools from it; the other modules encode requests and decode responses.
"""

from __future__ import annotations
