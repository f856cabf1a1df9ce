"""The text to learn: the help topics that come with every CPython, character by character."""

from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor


@dataclass(frozen=True)
class Corpus:
    """A text as numbers.

    Attributes:
        tokens: The index of each character in the alphabet, (length,).
        vocabulary_size: The alphabet's size, rounded up to a multiple of 8 so that ranks can split it evenly.
    """

    tokens: Tensor
    vocabulary_size: int

    def batches(self, count: int, batch: int, seq: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields `count` random pairs of inputs and targets, (batch, seq) each, one character apart."""
        generator = torch.Generator().manual_seed(seed)
        windows = self.tokens.unfold(0, seq + 1, 1)
        for _ in range(count):
            chosen = windows[torch.randint(len(windows), (batch,), generator=generator)]
            yield chosen[:, :-1], chosen[:, 1:]


def python_help() -> Corpus:
    """Returns all topics of Python's `help`, joined in sorted order."""
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = {character: index for index, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([alphabet[character] for character in text])
    return Corpus(tokens, vocabulary_size=-(-len(alphabet) // 8) * 8)
