"""Drivers that run cases with PyTorch: on a device (``device``), through ``torch.compile`` (``compiled``).

Importing this package does not import PyTorch; setting a driver up does.
"""
