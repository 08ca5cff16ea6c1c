"""A hard choice of vectors: z aims at e(likeliest tokens), not at its mean.

    soft    E[z_0 | x_t, z_t], which makes the rate smallest, and with exact laws makes the model exact
    hard    e(argmax_k p(x^k | x_t, z_t)), the vectors of one text, as its own model with its own bound

The hard one commits to a text before the tokens do: samples vary less.  It is a choice for sampling; its bound is
larger where the network is right.
"""

from typing import cast

from unnoise.denoiser import AnyDenoiser
from unnoise.hybrids.beside import TOKENS, VECTORS, Beside
from unnoise.predictions import Clean, ContinuousPrediction, FinitePrediction, Prediction, ProductPrediction
from unnoise.shapes import AnyState


class Hardened(AnyDenoiser):
    """A denoiser of tokens and vectors, with the vectors of its likeliest tokens."""

    def __init__(self, denoiser: AnyDenoiser):
        super().__init__()
        if not isinstance(denoiser.code, Beside):
            raise TypeError(
                f"the code is {denoiser.code!r}: a hard choice is one of vectors beside tokens, as hybrids.Paired has them"
            )
        self.inner, self.process = denoiser, denoiser.process

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: object) -> Prediction:
        prediction = cast(ProductPrediction, self.inner(x_t, t, **condition).by_leaf())
        tokens = cast(FinitePrediction, prediction.leaves[TOKENS])
        soft = cast(ContinuousPrediction, prediction.leaves[VECTORS])
        best = tokens.clean_law().log_probs.argmax(-1)
        hard = cast(Beside, self.code).vectors_of(best).to(soft.x_t.dtype)
        aimed = Clean(hard, soft.process, soft.x_t, soft.t, soft.variance).to(type(soft))
        return prediction.with_value({VECTORS: aimed.value})
