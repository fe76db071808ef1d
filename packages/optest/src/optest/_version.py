"""The version of `optest`; packaging reads it from here."""

__version__ = "0.1.0"
