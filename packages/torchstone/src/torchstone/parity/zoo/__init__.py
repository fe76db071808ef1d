"""The model zoo: whole networks, and every model of the inventory, one file per family.

``MODELS`` has whole networks by name. ``ARCHITECTURES`` has those of Hugging Face in the smallest possible
sizes. ``INVENTORY`` has small models that show one operator or one pattern each. All are built here, with
random weights and without downloads.
"""

from __future__ import annotations

from . import (
    attention,
    complex,
    dynamic_shape,
    embedding,
    fft,
    loss,
    quantization,
    rnn,
    scan,
    sparse,
)
from .architectures import ARCHITECTURES
from .example import INVENTORY, Example, ZooModel
from .networks import NETWORKS as MODELS
from .networks import Factory, bert, cnn, gpt2, mlp, resnet18, vit

__all__ = [
    "ARCHITECTURES",
    "INVENTORY",
    "MODELS",
    "Example",
    "Factory",
    "ZooModel",
    "bert",
    "cnn",
    "gpt2",
    "mlp",
    "resnet18",
    "vit",
]
