"""Shared by several tests of checkpoints: a training run, a kept state, the faults."""
