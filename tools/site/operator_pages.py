"""Adds one page per operator to the site, from ``docs/operators.json``. The repository has no such pages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = "operators"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each ATen packet (``add`` has ``add.Tensor``, ``add.Scalar``, …) and their index."""
    records = json.loads((Path(config.docs_dir) / "operators.json").read_text("utf-8"))
    packets: dict[str, dict[str, Any]] = defaultdict(dict)
    for overload, record in records.items():
        packets[overload.rpartition(".")[0]][overload] = record
    for packet, overloads in packets.items():
        text = "\n".join(_page(packet, overloads))
        files.append(File.generated(config, f"{FOLDER}/{packet}.md", content=text))
    index = "\n".join(_index(packets))
    files.append(File.generated(config, f"{FOLDER}/index.md", content=index))
    return files


def _index(packets: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    families: dict[str, list[str]] = defaultdict(list)
    for packet, overloads in packets.items():
        families[next(iter(overloads.values()))["family"]].append(packet)
    yield "# Operators, one page each\n"
    yield "What each ATen operator is lowered to, which dtypes it takes, and what is missing.\n"
    for family, members in sorted(families.items()):
        yield f"## {family}\n"
        yield ", ".join(f"[{_bare(one)}]({one}.md)" for one in sorted(members)) + "\n"


def _page(packet: str, overloads: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    family = next(iter(overloads.values()))["family"]
    yield f"# {_bare(packet)}\n"
    yield f"Family [`{family}`](../operators.md#{family}). [All operators](index.md).\n"
    for overload, record in overloads.items():
        yield f"## `{overload}`\n"
        yield record["documentation"].replace("``", "`") + "\n"
        yield f"```text\n{record['schema']}\n```\n"
        yield f"- **dtypes**: {_code(record['dtypes'])}"
        for dtype, reason in record.get("gaps", {}).items():
            yield f"- **gap** `{dtype}`: {reason}"
        if record["composites"]:
            links = ", ".join(f"[`{name}`](../composites.md)" for name in record["composites"])
            yield f"- **composites**: {links}"
        if record["lowered_to"]:
            yield f"- **operations**: {_code(record['lowered_to'])}"
        yield f"- **derivative**: {_formula(record['derivative'])}"
        if indices := record.get("indices"):
            counting = " They may count from the end." if indices["from_the_end"] else ""
            effect = f"{indices['out_of_range']}.{counting}"
            yield f"- **indices out of range** in `{indices['operand']}`: {effect}"
        for words in record.get("values", ()):
            yield f"- **refused values** with `check_values`: {words}"
        for part in ("decomposition", "traced_as", "shapes"):
            if part in record:
                yield f"- **{part.replace('_', ' ')}**: {_code(_listed(record[part]))}"
        if rules := record.get("capture_rules"):
            yield f"- **captured by a rule** instead of {_code(list(rules))}"
        yield ""


def _bare(packet: str) -> str:
    return packet.removeprefix("aten.")


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _formula(text: str) -> str:
    """Return the text about a derivative, with PyTorch's formula marked as code."""
    kind, comma, formula = text.partition(", ")
    return f"{kind}, `{formula}`" if kind == "PyTorch's" and comma else text


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
