"""Axis letters, the tensor shapes that have a name, and what a model knows of a corpus.

    B  sequences in a batch        T  padded length; position 0 is `<start>`
    V  vocabulary size             E  embedding width
    H  hidden width (H = E here)   K  mixture components or latent states
    W  learned initial states      P  pack members, trained as one program

Token ids are int64. Scores are float32 natural logarithms (nats).
"""

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lmzoo.base.config import config

Tokens = Int[Tensor, "B T"]
Lengths = Int[Tensor, "B"]
Prefix = Int[Tensor, "B t"]
StepTokens = Int[Tensor, "B"]
TokenScores = Float[Tensor, "B T"]
NextScores = Float[Tensor, "B V"]
Embeddings = Float[Tensor, "V E"]
Mask = Bool[Tensor, "B T"]
Features = Float[Tensor, "B t E"]
StepFeatures = Float[Tensor, "B 1 E"]
Vectors = Float[Tensor, "*N E"]
SequenceVectors = Float[Tensor, "B E"]
Hidden = Float[Tensor, "B H"]
SourceVectors = Float[Tensor, "B S E"]
Queries = Float[Tensor, "*N Q E"]
AttentionMask = Bool[Tensor, "*S Q M"]
Shape = tuple[int, ...]

PAD = 0
"""The first token ids of every vocabulary (END and UNKNOWN only where the corpus uses them)."""
START = 1
END = 2
UNKNOWN = 3


@config
class Task:
    """The sizes of a corpus that a model needs."""

    vocab: int = Field(ge=2)
    """Size V of the vocabulary."""
    length: int = Field(ge=2)
    """Padded length T, `<start>` included."""
    ends: bool = False
    """True if every complete sequence ends with `<end>`."""
    source_vocab: int = Field(0, ge=0)
    """Size of the source vocabulary; 0 if the corpus has no sources."""
    source_length: int = Field(0, ge=0)
    """Padded length S of a source."""


def needs_source_message(name: str) -> str:
    """Return the error message for a conditional model without sources."""
    return (
        f"{name} is a sequence-to-sequence model and no source is given; use a corpus of pairs: "
        "copy, reverse or multi30k_de_en"
    )
