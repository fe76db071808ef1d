"""The files of a dashboard: pages, assets, and data as scripts.

Data is wrapped in a function call, because browsers can load scripts from local files, but not JSON.
The argument is a string literal that the page parses, so nothing in a result can become code.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "dashboard.css": "text/css; charset=utf-8",
    "model.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "heatmap.js": "text/javascript; charset=utf-8",
    "detail.js": "text/javascript; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
}
"""The media types of all assets."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""The content security policy: nothing from other servers, nothing inline.

The page sets it itself, and a server sends it too.
"""


def asset(name: str) -> bytes:
    """Return the content of an asset."""
    return files("optest.dashboard").joinpath("assets", name).read_bytes()


def script(name: str, data: Any) -> str:
    """Return a script that passes ``data`` to the page under ``name``."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return f"optest.receive({json.dumps(name)}, JSON.parse({json.dumps(text)}));\n"
