"""Axis letters, and the tensor shapes that have a name.

    B  sequences in a batch        T  padded length; position 0 is `<start>`
    V  vocabulary size             E  embedding width
    H  hidden width (H = E here)   K  mixture components or latent states
    W  learned initial states      P  pack members, trained as one program

Token ids are int64. Scores are float32 natural logarithms (nats).
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Int[Tensor, "B T"]
Lengths = Int[Tensor, "B"]
Prefix = Int[Tensor, "B t"]
StepTokens = Int[Tensor, "B"]
TokenScores = Float[Tensor, "B T"]
NextScores = Float[Tensor, "B V"]
Embeddings = Float[Tensor, "V E"]
Mask = Bool[Tensor, "B T"]
