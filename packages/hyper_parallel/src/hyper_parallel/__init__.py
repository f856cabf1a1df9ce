"""Distributed tensors and tensor parallelism with single-device results."""
