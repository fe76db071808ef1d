"""Printed text has no control characters, no lone surrogates and no passwords."""

from __future__ import annotations

import pytest

from optest.text import clean, redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \t text\nénd", "plain \t text\nénd"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("a\x07\x08\r\x7f\x9b31mb", "a31mb"),
        ("\u202egnp.exe", "gnp.exe"),
        ("half \udcff \ud800", "half \\udcff \\ud800"),
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown
    clean(text).encode()


REDACTED = {
    "no address: user:word@host": "no address: user:word@host",
    "http://user@host/a:b@c": "http://user@host/a:b@c",
    "postgresql+psycopg://u:p@ss/w:rd@h:5432/db x": "postgresql+psycopg://u:***@h:5432/db x",
    "from 'https://:token@h' to 'https://a:b@h'": "from 'https://:***@h' to 'https://a:***@h'",
    "postgresql://h/db?password=a1&sslmode=no": "postgresql://h/db?password=***&sslmode=no",
    "http://h/?x=1&api_key=2": "http://h/?x=1&api_key=***",
}


@pytest.mark.parametrize(("text", "shown"), REDACTED.items())
def test_redacted(text: str, shown: str) -> None:
    assert redacted(text) == shown
