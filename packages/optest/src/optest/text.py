"""Text from elsewhere made fit to print and to store: names, errors, addresses, what programs wrote."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
"""Control sequences of terminals (ECMA-48: CSI, OSC and two-character ones)."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""All other control characters but tab and newline, and those that turn the direction of writing."""
_USER = re.compile(r"(\w:/+[^\s/:@'\"]*:)[^\s'\"]*@")
_PARAMETER = re.compile(r"(?i)([?&;](?:[a-z_]*password|passwd|pwd|token|secret|api_?key)=)[^\s&;'\"]+")


def clean(text: str) -> str:
    """``text`` to be shown: without what terminals obey (colors, cursor movements), passwords taken out."""
    return writable(_CONTROL.sub("", _ESCAPES.sub("", redacted(text))))


def writable(text: str) -> str:
    """``text`` as every file and database takes it: lone surrogates and NULs are written as escapes."""
    if "\0" not in text and (text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text)):
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def redacted(text: str) -> str:
    """``text`` without the passwords and tokens of the addresses in it."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1***@", text))
