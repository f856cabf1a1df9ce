"""Sizes of the model, in both frameworks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Sizes of the model; 2 and 4 ranks can share its heads, features and vocabulary evenly."""

    vocabulary_size: int
    hidden_size: int = 128
    intermediate_size: int = 256
    num_layers: int = 2
    num_heads: int = 8
    num_kv_heads: int = 4
    head_dim: int = 16
    tied: bool = False
