"""Makes foreign text safe to print and store: names, errors, addresses, output of programs."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
"""Control sequences of terminals (ECMA-48: CSI, OSC and two-character ones)."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All other control characters except tab and newline, and those that change the writing direction."""
_USER = re.compile(r"(\w:/+[^\s/:@'\"]*:)[^\s'\"]*@")
_PARAMETER = re.compile(r"(?i)([?&;](?:[a-z_]*password|passwd|pwd|token|secret|api_?key)=)[^\s&;'\"]+")


def clean(text: str) -> str:
    """Return ``text`` for display, without control sequences (colors, cursor movements) and passwords."""
    return writable(_CONTROL.sub("", _ESCAPES.sub("", redacted(text))))


def writable(text: str) -> str:
    """Return ``text`` so that every file and database accepts it: lone surrogates and NULs are escaped."""
    if "\0" not in text and (text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text)):
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def redacted(text: str) -> str:
    """Return ``text`` without the passwords and tokens of addresses in it."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1***@", text))
