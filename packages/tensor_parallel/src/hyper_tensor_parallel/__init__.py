"""Tensor-parallel styles and parallelize_module."""
