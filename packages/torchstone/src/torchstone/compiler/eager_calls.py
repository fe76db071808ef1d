"""Calls a model in eager PyTorch, to find out what it refuses, without changing the model."""

from __future__ import annotations

import copy
import os
from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch

from ..torch_internals import pytree
from .assigned_buffers import members_kept
from .plain_attributes import attributes_kept


def eager_error(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """Return what eager PyTorch raises for the example inputs; None if nothing, or if they cannot be copied.

    Tracing often refuses wrong inputs with a different message, about tensors that the user never saw.
    Inputs, parameters, buffers and random generators are not changed. Copies share memory if the inputs do.
    The result is None, too, if memory does not suffice for a copy of the parameters.
    """
    parameters = dict(module.named_parameters())
    if not _fits(parameters.values()):
        return None
    try:
        given = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (tuple(args), dict(kwargs)))
        positional, named = copy.deepcopy(given)
    except Exception:  # noqa: BLE001  # objects may refuse to be copied in any way
        return None
    with torch.no_grad():
        result = called_eagerly(module, positional, named, parameters)
    return result if isinstance(result, Exception) else None


def _fits(tensors: Any) -> bool:
    """Whether the free memory of this machine suffices for a copy of ``tensors``."""
    size = sum(one.nbytes for one in tensors if one.device.type == "cpu")
    return bool(size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def called_eagerly(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], written: Container[str] = ()
) -> Any:
    """Call ``module`` in eager PyTorch; returns its result or the exception that it raises.

    The call does not change the buffers of ``module``, the parameters named in ``written``, the
    attributes of submodules, or the random generators.
    """
    with members_kept(module), attributes_kept(module):
        try:
            parameters = {
                name: one.detach().clone() for name, one in module.named_parameters() if name in written
            }
            # A deep copy keeps the strides, a clone may not: some PyTorch kernels crash for certain strides.
            buffers = copy.deepcopy({name: one.detach() for name, one in module.named_buffers()})
            with torch.random.fork_rng(devices=()):
                return torch.func.functional_call(
                    module, {**parameters, **buffers}, tuple(args), dict(kwargs)
                )
        except Exception as error:  # noqa: BLE001  # the caller asks which one it is
            return error
