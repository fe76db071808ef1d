"""The only dtype table: torch ↔ MLIR ↔ NumPy.

A :class:`DType` is a value object that knows its name in each of the three
worlds. torch and ml_dtypes are imported inside functions only, so that the
runtime works in a process without torch.

Sets of dtypes (``FLOATING``, ``INTEGRAL``, …) are frozensets: combine them
with ``|``, ``&`` and ``-``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from .errors import UnsupportedDtype

if TYPE_CHECKING:
    import numpy
    import torch

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    ``name`` is PyTorch's name where PyTorch has the dtype; ``mlir`` is the text of the
    MLIR element type; ``numpy_name`` is the NumPy or ml_dtypes name; ``bits`` is the width
    of one element (1 for a bool, although it is stored in 8 bits).
    """

    name: str
    mlir: str
    numpy_name: str
    kind: Kind
    bits: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)  # a copy is the table's own entry, because dtypes are compared with `is`

    @property
    def itemsize(self) -> int:
        """Bytes of one element in a PyTorch or NumPy buffer."""
        return max(1, self.bits // 8)

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer; bool does not count as one."""
        return self.kind in ("int", "uint")

    @property
    def is_unsigned(self) -> bool:
        return self.kind in ("uint", "bool")

    @property
    def is_floating(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def real(self) -> DType:
        """The dtype of the real part (itself for a real dtype)."""
        return {COMPLEX64: FLOAT32, COMPLEX128: FLOAT64}.get(self, self)

    @property
    def complex(self) -> DType:
        """The complex dtype whose parts have this dtype."""
        try:
            return {FLOAT32: COMPLEX64, FLOAT64: COMPLEX128}[self.real]
        except KeyError:
            raise UnsupportedDtype(f"no complex dtype has {self.name} parts") from None

    @property
    def numpy(self) -> numpy.dtype[Any]:
        """The NumPy dtype (ml_dtypes' for what NumPy itself lacks)."""
        return _numpy_dtype(self.numpy_name)

    @property
    def torch(self) -> torch.dtype:
        """The torch dtype; raises :class:`UnsupportedDtype` where torch has none."""
        import torch

        found = getattr(torch, self.name, None)
        if not isinstance(found, torch.dtype):
            raise UnsupportedDtype(f"this PyTorch has no dtype {self.name}")
        return found


BOOL = DType("bool", "i1", "bool", "bool", 1)
INT4 = DType("int4", "i4", "int4", "int", 4)
INT8 = DType("int8", "i8", "int8", "int", 8)
INT16 = DType("int16", "i16", "int16", "int", 16)
INT32 = DType("int32", "i32", "int32", "int", 32)
INT64 = DType("int64", "i64", "int64", "int", 64)
UINT4 = DType("uint4", "ui4", "uint4", "uint", 4)
UINT8 = DType("uint8", "ui8", "uint8", "uint", 8)
UINT16 = DType("uint16", "ui16", "uint16", "uint", 16)
UINT32 = DType("uint32", "ui32", "uint32", "uint", 32)
UINT64 = DType("uint64", "ui64", "uint64", "uint", 64)
FLOAT16 = DType("float16", "f16", "float16", "float", 16)
BFLOAT16 = DType("bfloat16", "bf16", "bfloat16", "float", 16)
FLOAT32 = DType("float32", "f32", "float32", "float", 32)
FLOAT64 = DType("float64", "f64", "float64", "float", 64)
COMPLEX64 = DType("complex64", "complex<f32>", "complex64", "complex", 64)
COMPLEX128 = DType("complex128", "complex<f64>", "complex128", "complex", 128)
FLOAT8_E4M3FN = DType("float8_e4m3fn", "f8E4M3FN", "float8_e4m3fn", "float", 8)
FLOAT8_E4M3FNUZ = DType("float8_e4m3fnuz", "f8E4M3FNUZ", "float8_e4m3fnuz", "float", 8)
FLOAT8_E5M2 = DType("float8_e5m2", "f8E5M2", "float8_e5m2", "float", 8)
FLOAT8_E5M2FNUZ = DType("float8_e5m2fnuz", "f8E5M2FNUZ", "float8_e5m2fnuz", "float", 8)
FLOAT8_E8M0FNU = DType("float8_e8m0fnu", "f8E8M0FNU", "float8_e8m0fnu", "float", 8)

FLOAT8 = frozenset({FLOAT8_E4M3FN, FLOAT8_E4M3FNUZ, FLOAT8_E5M2, FLOAT8_E5M2FNUZ, FLOAT8_E8M0FNU})
BOOLEAN = frozenset({BOOL})
SIGNED = frozenset({INT8, INT16, INT32, INT64})
UNSIGNED = frozenset({UINT8, UINT16, UINT32, UINT64})
INTEGRAL = SIGNED | {UINT8}
"""The integers that PyTorch's operators usually take: signed ones and uint8."""
ALL_INTEGRAL = SIGNED | UNSIGNED
SUB_BYTE = frozenset({INT4, UINT4})
HALF = frozenset({FLOAT16, BFLOAT16})
FLOATING = HALF | {FLOAT32, FLOAT64}
COMPLEX = frozenset({COMPLEX64, COMPLEX128})
REAL = INTEGRAL | FLOATING
NUMERIC = REAL | COMPLEX
STANDARD = NUMERIC | BOOLEAN
"""bool, uint8, the signed integers, floating point, complex: what most operators take."""
COPYABLE = STANDARD | UNSIGNED | FLOAT8
"""Every dtype in which PyTorch makes and copies tensors."""
EVERY = COPYABLE | SUB_BYTE

SAFETENSORS = {
    BOOL: "BOOL",
    UINT8: "U8",
    INT8: "I8",
    UINT16: "U16",
    INT16: "I16",
    UINT32: "U32",
    INT32: "I32",
    UINT64: "U64",
    INT64: "I64",
    FLOAT16: "F16",
    BFLOAT16: "BF16",
    FLOAT32: "F32",
    FLOAT64: "F64",
    COMPLEX64: "C64",
    FLOAT8_E4M3FN: "F8_E4M3",
    FLOAT8_E5M2: "F8_E5M2",
    FLOAT8_E8M0FNU: "F8_E8M0",
}
"""The safetensors names of the dtypes that every version of safetensors since 0.5 can read."""

_BY_NAME = {dtype.name: dtype for dtype in EVERY}
_BY_MLIR = {dtype.mlir: dtype for dtype in EVERY}
_SCALAR_TYPES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def by_name(name: str) -> DType:
    """The dtype called ``name`` (``"float32"``); raises :class:`UnsupportedDtype`."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise unsupported(name) from None


def from_mlir(text: str) -> DType:
    """The dtype of an MLIR element type's text (``"bf16"``); raises :class:`UnsupportedDtype`."""
    try:
        return _BY_MLIR[text]
    except KeyError:
        raise unsupported(text) from None


def from_torch(dtype: torch.dtype) -> DType:
    """The dtype of a ``torch.dtype``; raises :class:`UnsupportedDtype`."""
    return by_name(str(dtype).removeprefix("torch."))


def scalar_type(dtype: torch.dtype) -> str:
    """Return ATen's name of a ``torch.dtype`` in messages (``Float``, ``Long``), or its own name if rare."""
    name = str(dtype).removeprefix("torch.")
    return _SCALAR_TYPES.get(name, name)


def from_numpy(dtype: Any) -> DType:
    """The dtype of a NumPy (or ml_dtypes) dtype; raises :class:`UnsupportedDtype`."""
    return by_name(str(getattr(dtype, "name", dtype)))


def unsupported(name: str) -> UnsupportedDtype:
    """The error for a dtype that is not in the table."""
    hint = {
        "complex32": "convert to complex64: StableHLO has no complex type with float16 parts",
        "qint8": "use the integer storage (int_repr) with its scale and zero point",
        "quint8": "use the integer storage (int_repr) with its scale and zero point",
        "qint32": "use the integer storage (int_repr) with its scale and zero point",
    }.get(name, "supported dtypes: " + ", ".join(sorted(_BY_NAME)))
    return UnsupportedDtype(f"dtype {name} is not supported", hint=hint)


@cache
def _numpy_dtype(name: str) -> numpy.dtype[Any]:
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
