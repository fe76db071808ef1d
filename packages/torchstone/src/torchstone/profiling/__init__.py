"""Profiles of blocks of code and of models: time, memory and compilations. See docs/profiling.md."""

from .models import profile_model
from .record import Recompile, Span
from .roofline import Peaks, measure_peaks
from .session import Profile, profile

__all__ = ["Peaks", "Profile", "Recompile", "Span", "measure_peaks", "profile", "profile_model"]
