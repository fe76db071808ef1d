"""Elementwise operators: arithmetic, functions, comparison, selection, activation, conversion."""
