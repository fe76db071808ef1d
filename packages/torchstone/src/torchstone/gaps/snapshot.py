"""Saving a surface to a file, so that versions can be compared (:mod:`.diff`) without being installed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from optest.files import read_whole

from ..errors import GapsError, SnapshotError
from .branches import Branch, scan_torch
from .signatures import Parameter, Signature
from .surface import DEFAULT, Api, read_surface

FORMAT = "torchstone-api-snapshot"
VERSION = 1
_READ_AGAIN = "write it again with `torchstone gaps snapshot -o FILE`, under the PyTorch that it is of"


@dataclass(frozen=True)
class Snapshot:
    """The public API of one PyTorch; ``torch`` is its version, ``commit`` the commit it was built from."""

    torch: str
    commit: str
    namespaces: tuple[str, ...]
    apis: Mapping[str, Api]
    unreadable: Mapping[str, str]
    branches: tuple[Branch, ...] = ()
    """The places where its Python sources treat devices differently, if requested."""


def take_snapshot(namespaces: Sequence[str] = DEFAULT, *, branches: bool = False) -> Snapshot:
    """Take a snapshot of the installed PyTorch. Raises :class:`GapsError` for an unknown namespace."""
    import torch

    surface = read_surface(namespaces)
    version, commit = torch.__version__.partition("+")[0], torch.version.git_version or ""
    found = scan_torch() if branches else ()
    return Snapshot(version, commit, tuple(namespaces), surface.apis, surface.unreadable, found)


def to_json(snapshot: Snapshot) -> str:
    """Return the text of the file, one API per line; it is always the same for the same PyTorch."""
    head = {
        "format": FORMAT,
        "format_version": VERSION,
        "torch": snapshot.torch,
        "commit": snapshot.commit,
        "namespaces": list(snapshot.namespaces),
        "unreadable": dict(snapshot.unreadable),
        "branches": [asdict(one) for one in snapshot.branches],
    }
    apis = ",\n".join(json.dumps(_of_api(api), ensure_ascii=False) for api in snapshot.apis.values())
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "apis": [\n{apis}\n]}}\n'


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot. Raises :class:`SnapshotError` if the file is not one or has another format version."""
    try:
        found = json.loads(read_whole(path))
    except OSError as error:
        raise GapsError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SnapshotError(
            f"{path} is not a snapshot: it is not JSON ({error})", hint=_READ_AGAIN
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SnapshotError(f"{path} is not a snapshot of an API surface", hint=_READ_AGAIN)
    if found.get("format_version") != VERSION:
        raise SnapshotError(
            f"{path} has snapshot format {found.get('format_version')}; this Torchstone reads {VERSION}",
            hint=_READ_AGAIN,
        )
    try:
        apis = [_to_api(entry) for entry in found["apis"]]
        return Snapshot(
            found["torch"],
            found["commit"],
            tuple(found["namespaces"]),
            {api.name: api for api in apis},
            dict(found["unreadable"]),
            tuple(Branch(**one) for one in found["branches"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SnapshotError(f"{path} is damaged: {reason}", hint=_READ_AGAIN) from error


def _of_api(api: Api) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": api.name, "kind": api.kind}
    if api.home:
        entry["home"] = api.home
    if api.signatures:
        entry["origin"] = api.origin
        entry["signatures"] = [
            {"parameters": [_of_parameter(one) for one in each.parameters], "returns": each.returns}
            for each in api.signatures
        ]
    return entry


def _of_parameter(one: Parameter) -> dict[str, str]:
    fields = {"name": one.name, "kind": one.kind, "default": one.default, "annotation": one.annotation}
    return {key: value for key, value in fields.items() if value is not None}


def _to_api(entry: Mapping[str, Any]) -> Api:
    signatures = tuple(
        Signature(tuple(Parameter(**one) for one in each["parameters"]), each["returns"])
        for each in entry.get("signatures", ())
    )
    name, kind = str(entry["name"]), str(entry["kind"])
    return Api(name, kind, entry.get("home", ""), signatures, entry.get("origin", "none"))
