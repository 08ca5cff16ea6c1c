"""Tokens and vectors beside them, noised together: a model of the tokens.

Data x are categories.  The states are (x_t, z_t): x_t is x under masking, and z_t = a_t z_0 + s_t eps are vectors beside it,
z_0 = e(x) a function of x.  Given x the two are noised independently, so the process is a product, and one network sees
both.  Let Q be the law of paths (x_t, z_t) from t = 1 to the cut-off given x, P that of the model: it starts from the
prior, follows its reverse generators, and ends by drawing x from p(x | x_eps, z_eps).  Since p(x) = E_P p(x | x_eps, z_eps),

    -log p(x)  <=  KL(Q || P) + E_Q[-log p(x | x_eps, z_eps)]
               =   KL(q(x_1 | x) || p_1) + KL(q(z_1 | z_0) || p_1)                 both priors
                   + int_eps^1 [cross-entropy of masked tokens + rate of the vectors] dt
                   + E_Q[-log p(x | x_eps, z_eps)]                                what is still masked, read off
                                                                     (eq:ELBO-generator-Dynkin, eq:generator-dimensional-sum)

The vectors have no term of reconstruction, and z_0 needs no density and e no entropy: the model ends at (x_eps, z_eps), of
which only x is drawn, and what is forgotten only lowers a divergence (data processing).  Were z_0 kept as data, the bound
would be one on -log p(x, z_0), which is another number and, for a z_0 that is a point, infinite.

But z must be paid for as long as it is looked at.  In Q it is drawn around the truth, so it tells the network what x is; in
P it is drawn from what the network knows.  The difference of the two is KL(q(z_1 | z_0) || p_1) and the rate of the vectors,

    rate  =  -SNR'/2 |z_0 - E_model[z_0 | x_t, z_t]|^2        (of every position whose z the model does not know exactly)

One token, exact posteriors, tokens masked at an even pace: their term is int H(x | z_t) dt = H(x) - int I(x; z_t) dt, below
the entropy; the vectors' rate while masked is int t (-dI/dt) dt = int I dt - I(x; z_1) by the I-MMSE identity; and the prior
of z is I(x; z_1) on average, and more where p_1 is not the law of z_1.  The sum is H(x), and the first term alone no bound.
"""

from abc import abstractmethod
from typing import Any, cast

from torch import Tensor

from unnoise.codes import Code
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.predictions import FinitePrediction, Prediction, ProductPrediction
from unnoise.processes import Gaussian, Masking, Process, Product
from unnoise.schedules import Schedule
from unnoise.shapes import Float, Tree
from unnoise.spaces import Finite

TOKENS, VECTORS = "tokens", "vectors"


def beside(space: Finite, width: int, tokens: Schedule | None = None, vectors: Schedule | None = None) -> Product:
    """The process: masking, and Gaussian noise on `width` numbers beside each token, each by its own schedule."""
    masking, gaussian = Masking(space.size, space.shape, tokens), Gaussian((*space.shape, width), vectors)
    return Product(tokens=masking, vectors=gaussian)


class Beside(Code):
    """Base of the codes with tokens and vectors; a subclass says `vectors_of`, and what the network tells of them."""

    rounds = needs_network = True
    space: Finite

    @abstractmethod
    def vectors_of(self, x: Tensor) -> Float[Tensor, "batch *shape D"]:
        """z_0 = e(x)."""

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tree, dict[str, Tensor]]:
        return {TOKENS: x, VECTORS: self.vectors_of(cast(Tensor, x))}, {}

    def law(self, z: Tree, t: float, process: Process, prediction: Prediction | None) -> Categorical:
        """What is revealed is itself; what is masked is as the network says, position by position."""
        tokens = cast(ProductPrediction, cast(Prediction, prediction).by_leaf()).leaves[TOKENS]
        return cast(FinitePrediction, tokens).clean_law()
