"""The token embedding table."""

from torch import nn


class Table(nn.Embedding):
    """Token embeddings with a chosen initial spread."""

    def __init__(self, vocab: int, width: int, std: float | None) -> None:
        self._std = width**-0.5 if std is None else std
        super().__init__(vocab, width)

    def reset_parameters(self) -> None:
        """N(0, std²)."""
        nn.init.normal_(self.weight, std=self._std)
