"""The driver ``http``: it posts each case to a server, which answers with the outputs.

Request and answer are in the safetensors format: eight bytes with the length of a JSON header
(little-endian), the header, then the bytes of the tensors. In a request, ``case`` in the header's
``__metadata__`` is the case as JSON. The tensors of the answer have the names of the operator's outputs, such
as ``output0``.
"""

from __future__ import annotations

import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..driver_settings import HTTP_FIELDS, check_settings
from ..errors import UsageError
from ..http_client import answer_to, problem_of
from ..text import redacted
from .command import case_facts
from .driver import BackendDriver, ProgramFailed, Unsupported
from .tensor_files import BadOutput, dtype_named, restored, stored

if TYPE_CHECKING:
    from ..core.case import TestCase

MEDIA_TYPE = "application/octet-stream"
NOT_IMPLEMENTED = 501
TAIL = 2000
_FIRST_ERROR = 400
_HEADER_BYTES = 1 << 20
_CODES = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{f"complex{bits}": f"C{bits}" for bits in (64, 128)},
}
"""Dtypes and their names in safetensors; C128 is an addition of optest."""
_NAMES = {code: name for name, code in _CODES.items()}


class HttpDriver(BackendDriver):
    """Runs cases on a server; the HTTP status 501 means that the server does not support the case."""

    kind = "http"
    name = "http"
    settings = HTTP_FIELDS

    def identity(self, settings: Mapping[str, Any]) -> str:
        """Return the URL of the server, without secrets."""
        return redacted(str(settings.get("url", "")))

    def check(self, case: TestCase) -> None:
        check_settings("http", case.backend_config.get("http", {}), HTTP_FIELDS, "url")
        settings = case.backend_config["http"]
        problem = problem_of(settings["url"], settings.get("headers"))
        if problem is not None:
            raise UsageError(f"backend_config.http cannot be used, url {_shown(settings)!r}: {problem}")

    def run(self, case: TestCase, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the outputs in the server's answer.

        Raises :class:`UsageError` for unusable settings, :class:`Unsupported` for the status 501, and
        :class:`ProgramFailed` if the server cannot be reached, takes too long or answers with anything other
        than the outputs.
        """
        self.check(case)
        settings = case.backend_config["http"]
        body = pack(dict(zip(case.descriptor.inputs, inputs, strict=True)), {"case": _facts(case)})
        try:
            outputs = unpack(_post(settings, body, _most_bytes(case)), _shown(settings))
        except BadOutput as error:
            raise ProgramFailed(error.message) from None
        missing = [name for name in case.descriptor.outputs if name not in outputs]
        if missing:
            raise ProgramFailed(f"the answer of {_shown(settings)} has no tensor {missing[0]!r}")
        return tuple(outputs[name] for name in case.descriptor.outputs)


def pack(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of one message with tensors and metadata."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    parts: list[bytes] = []
    offset = 0
    for name, array in tensors.items():
        code = _CODES.get(array.dtype.name)
        if code is None:
            raise Unsupported(f"{name} is {array.dtype.name}, for which safetensors has no name")
        parts.append(stored(array, array.dtype.name, name))
        end = offset + len(parts[-1])
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    return b"".join((len(text).to_bytes(8, "little"), text, *parts))


def unpack(message: bytes, sender: str) -> dict[str, NDArray[Any]]:
    """Return the tensors of a message; raise :class:`BadOutput` if it is not valid."""
    length = int.from_bytes(message[:8], "little")
    data = message[8 + length :]
    try:
        if len(message) < 8 + length:
            raise ValueError("it is cut short")
        header = json.loads(message[8 : 8 + length])
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {
            name: restored(
                data[slice(*entry["data_offsets"])],
                _NAMES[entry["dtype"]],
                entry["shape"],
                f"{sender}: {name}",
            )
            for name, entry in entries.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadOutput(f"the answer of {sender} is not in the container of safetensors: {error}") from None


def _facts(case: TestCase) -> str:
    outputs = [
        {"tensor": name, "dtype": dtype, "shape": list(case.output_shapes[name])}
        for name, dtype in zip(case.descriptor.outputs, case.output_dtypes, strict=True)
    ]
    return json.dumps(case_facts(case) | {"inputs": list(case.descriptor.inputs), "outputs": outputs})


def _shown(settings: Mapping[str, Any]) -> str:
    return redacted(settings["url"])


def _most_bytes(case: TestCase) -> int:
    """Return the most bytes that an answer may have: those of the outputs and of a header."""
    sizes = zip(case.output_dtypes, case.output_shapes.values(), strict=True)
    return _HEADER_BYTES + sum(dtype_named(dtype).itemsize * math.prod(shape) for dtype, shape in sizes)


def _post(settings: Mapping[str, Any], body: bytes, most: int) -> bytes:
    url = _shown(settings)
    headers = {"Content-Type": MEDIA_TYPE, **settings.get("headers", {})}
    request = urllib.request.Request(settings["url"], body, headers, method="POST")
    try:
        with answer_to(request, settings.get("timeout")) as answer:
            code, content = answer.status, answer.read(most + 1)
    except TimeoutError:
        raise ProgramFailed(
            f"{url} did not answer within {settings['timeout']:g} s", timed_out=True
        ) from None
    except urllib.error.URLError as error:
        raise ProgramFailed(f"{url} cannot be reached: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ProgramFailed(f"the connection to {url} broke: {type(error).__name__}: {error}") from None
    if code is None or code >= _FIRST_ERROR:
        text = content[:TAIL].decode("utf-8", "replace").strip()
        if code == NOT_IMPLEMENTED:
            raise Unsupported(text or f"{url} does not support the case")
        raise ProgramFailed(f"{url} answered {code} {answer.reason}", stderr_tail=text)
    if len(content) > most:
        raise ProgramFailed(f"{url} answered more than {most:,} bytes: the outputs have fewer")
    return content
