"""The names and texts of a dashboard's files: pages, assets, and data as scripts.

Data is wrapped in a call, because browsers load scripts, but no JSON, from files. The
argument is a string literal that the page parses: nothing in a result can become code.
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
"""The assets, all of them."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""Nothing from elsewhere, nothing inline: the page asks for this itself, and a server says it too."""


def asset(name: str) -> bytes:
    """The content of an asset."""
    return files("optest.dashboard").joinpath("assets", name).read_bytes()


def script(name: str, data: Any) -> str:
    """``data`` as a script that hands it to the page under ``name``."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return f"optest.receive({json.dumps(name)}, JSON.parse({json.dumps(text)}));\n"
