"""The text to learn: the help topics that come with every CPython, character by character."""

from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """A text as numbers.

    Attributes:
        tokens: The index of each character in the alphabet, (length,).
        vocabulary_size: The alphabet's size, rounded up to a multiple of 8 so that ranks can split it evenly.
    """

    tokens: Tokens
    vocabulary_size: int

    def batches(self, count: int, batch: int, seq: int, seed: int) -> Iterator[tuple[Tokens, Tokens]]:
        """Yields `count` random pairs of inputs and targets, (batch, seq) each, one character apart."""
        generator = np.random.default_rng(seed)
        windows: Any = np.lib.stride_tricks.sliding_window_view(self.tokens, seq + 1)
        for _ in range(count):
            chosen = windows[generator.integers(len(windows), size=batch)]
            yield chosen[:, :-1].copy(), chosen[:, 1:].copy()


def python_help() -> Corpus:
    """Returns all topics of Python's `help`, joined in sorted order."""
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = {character: index for index, character in enumerate(sorted(set(text)))}
    tokens = np.array([alphabet[character] for character in text])
    return Corpus(tokens, vocabulary_size=-(-len(alphabet) // 8) * 8)
