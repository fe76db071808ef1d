"""What several tests of checkpoints share: a training run, a kept state, the faults."""
