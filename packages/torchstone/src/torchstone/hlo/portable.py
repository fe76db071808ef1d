"""Portable StableHLO: target versions and serialization.

Composites exist since StableHLO 0.19.0. For older targets, they and CHLO are
inlined first.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import ConfigError, VerificationError
from ._mlir import ir, jax_interpreters, jax_mlir, new_context, passmanager, stablehlo
from .outline import outline

COMPOSITES_SINCE = (0, 19, 0)

_INLINE = (
    "builtin.module(func.func(stablehlo-legalize-composite-to-call),inline,symbol-dce,"
    "func.func(chlo-legalize-to-stablehlo),canonicalize,cse)"
)


def resolve_version(requested: str) -> str:
    """Return the version number of ``"current"``, ``"minimum"``, ``"week_4"``, ``"week_12"`` or ``"0.19.0"``.

    Raises :class:`ConfigError` for anything else and for versions that this
    toolchain cannot write.
    """
    requirement = stablehlo.StablehloCompatibilityRequirement
    named = {"week_4": requirement.WEEK_4, "week_12": requirement.WEEK_12}
    current, minimum = stablehlo.get_current_version(), stablehlo.get_minimum_version()
    hint = f"use minimum, week_12, week_4, current, or a number from {minimum} to {current}"
    if requested == "current":
        return str(current)
    if requested == "minimum":
        return str(minimum)
    if requested in named:
        return str(stablehlo.get_version_from_compatibility_requirement(named[requested]))
    if not isinstance(requested, str) or not re.fullmatch(r"\d+\.\d+\.\d+", requested):
        raise ConfigError(f"{requested!r} is not a StableHLO version", hint=hint)
    if not version_key(minimum) <= version_key(requested) <= version_key(current):
        raise ConfigError(f"StableHLO version {requested} cannot be written here", hint=hint)
    return requested


def version_key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def serialize(module: Any, version: str, *, sharded: bool = False) -> bytes:
    """Return portable bytecode of an MLIR module for consumers of ``version`` or later.

    The module itself is not changed.

    With ``sharded``, the module may have Shardy's operations, which are written unchanged next to
    StableHLO's. Raises :class:`VerificationError` if an operation does not exist in that version.
    """
    code = jax_interpreters.module_to_bytecode(module)
    if version_key(version) < COMPOSITES_SINCE:
        copy = ir.Module.parse(code, context=module.context)
        stablehlo.register_stablehlo_passes()
        with module.context:
            passmanager.PassManager.parse(_INLINE).run(copy.operation)
        code = jax_interpreters.module_to_bytecode(copy)
    try:
        return bytes(jax_mlir.serialize_portable_artifact(code, version, use_mixed_serialization=sharded))
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise VerificationError(
            f"the module cannot be written for StableHLO {version}: {error}",
            hint="choose a later version with stablehlo_version=",
        ) from error


def text_of(portable: bytes, *, debug_info: bool = False, functions: bool = False) -> str:
    """Return a portable artifact as MLIR text; raise :class:`VerificationError` for other data.

    With ``functions``, ``main`` calls a function for each module of the model (:mod:`.outline`).
    """
    context = new_context()
    try:
        with context:
            module = stablehlo.deserialize_portable_artifact(context, portable)
            if functions:
                outline(module)
            return str(module.operation.get_asm(enable_debug_info=debug_info, large_elements_limit=64))
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise VerificationError(f"this is not a portable StableHLO artifact: {error}") from error
