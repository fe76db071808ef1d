"""Every speed claim of Torchstone, each measured beside a peer in the same run."""
