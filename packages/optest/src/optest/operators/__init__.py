"""Operators: their inputs, attributes and outputs, and their NumPy references."""

from .descriptor import REQUIRED, AttributeSpec, DTypes, OperatorDescriptor, Setup, Shape, Shapes
from .domain import Domain
from .registry import OperatorRegistry, operator_registry

__all__ = [
    "REQUIRED",
    "AttributeSpec",
    "DTypes",
    "Domain",
    "OperatorDescriptor",
    "OperatorRegistry",
    "Setup",
    "Shape",
    "Shapes",
    "operator_registry",
]
