"""Replacements that always have the signature of the function they replace.

:func:`mirror` generates a function with the original's parameters (names, order, kinds, defaults,
annotations). That function looks up the thread's scope and calls either the implementation or the original.
If a module that was imported inside a scope keeps the replacement, it behaves like the original once the
scope has ended.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from ..torch_internals import redirection
from .scope import current_scope, told_of_cuda

Implementation = Callable[..., Any]
"""A function that takes the scope, then the original's arguments (the keyword-only ones by name)."""

_BODY = """\
def made(scope_of_thread, told_of_cuda, original, implementation):
    def {name}({parameters}):
        scope = scope_of_thread()
        if scope is None{truth}:
            return original({arguments})
        return implementation(scope, {arguments})
    return {name}
"""
_TRUTH = " or not told_of_cuda(scope)"
_ANY = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


def mirror(original: Any, implementation: Implementation, *, by_caller: bool = False) -> Any:
    """Return a function with ``original``'s signature that calls ``implementation`` inside a scope.

    ``by_caller``: callers that are not told of CUDA get the original. A builtin without a signature is
    mirrored as ``(*args, **kwargs)``.
    """
    signature = signature_of(original)
    name = getattr(original, "__name__", "replacement")
    source = _BODY.format(
        name=name,
        parameters=_parameters(signature),
        arguments=_arguments(signature),
        truth=_TRUTH if by_caller else "",
    )
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, f"<redirected {name}>", "exec"), space)
    made = space["made"](current_scope, told_of_cuda, original, implementation)
    redirection.not_compiled_alone(made)
    _set_defaults(made, signature)
    for attribute in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        if hasattr(original, attribute):
            setattr(made, attribute, getattr(original, attribute))
    made.__dict__.update(getattr(original, "__dict__", {}))
    return made


def signature_of(original: Any) -> inspect.Signature:
    """Return the signature, if possible without following wrappers; else ``(*args, **kwargs)``."""
    for follow in (False, True):  # a cached function has a signature only through its wrapper
        with contextlib.suppress(ValueError, TypeError):
            return inspect.signature(original, follow_wrapped=follow)
    return _ANY


def _parameters(signature: inspect.Signature) -> str:
    """Return the text of the parameter list, with ``...`` in place of every default."""
    plain = [
        one.replace(
            annotation=inspect.Parameter.empty,
            default=one.default if one.default is one.empty else ...,
        )
        for one in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return text[1:-1].replace("Ellipsis", "...")


def _arguments(signature: inspect.Signature) -> str:
    written: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*{0}",
        inspect.Parameter.VAR_KEYWORD: "**{0}",
        inspect.Parameter.KEYWORD_ONLY: "{0}={0}",
    }
    return ", ".join(written.get(one.kind, "{0}").format(one.name) for one in signature.parameters.values())


def _set_defaults(made: Any, signature: inspect.Signature) -> None:
    given = [one for one in signature.parameters.values() if one.default is not one.empty]
    keyword = inspect.Parameter.KEYWORD_ONLY
    made.__defaults__ = tuple(one.default for one in given if one.kind is not keyword) or None
    made.__kwdefaults__ = {one.name: one.default for one in given if one.kind is keyword} or None


def adapting(adapt: Callable[[Any, dict[str, Any]], None]) -> Callable[[Any], Implementation]:
    """Return an ``around`` for rows: it calls the original after ``adapt(scope, arguments)``.

    ``adapt`` changes the arguments by name, so the original must have a signature (wrappers are followed
    to find it).
    """

    def around(original: Any) -> Implementation:
        signature = inspect.signature(original)

        def implementation(scope: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            adapt(scope, bound.arguments)
            return original(*bound.args, **bound.kwargs)

        return implementation

    return around
