"""How the bound ends on the simplex, and for positive numbers.

VertexDecoder    data at vertices: the model's law of the category given x_eps
SimplexDecoder   data inside: pi(x_0) R(x_0, x_eps), the diffusion from x_eps run for the time of the cut-off: a density in
x_0
                 since R is symmetric; needs no network
OrthantDecoder   positive numbers: the same under Cox-Ingersoll-Ross noise
"""

from unnoise.objectives.decoders import Decoder, refuse_decoder
from unnoise.predictions import VertexPosterior
from unnoise.processes import CoxIngersollRoss, WrightFisher


class VertexDecoder(Decoder):
    def nll(self, process, prediction, x0, x_eps, eps):
        if not isinstance(prediction, VertexPosterior):
            raise refuse_decoder(self, process)
        return -prediction.clean_law().log_prob(x0.argmax(-1).unsqueeze(-1))


class SimplexDecoder(Decoder):
    needs_network = False

    def nll(self, process, prediction, x0, x_eps, eps):
        if not isinstance(process, WrightFisher) or process.vertices:
            raise refuse_decoder(self, process)
        return -process.law(x_eps, process.tau(eps, x_eps)).log_prob(x0)


class OrthantDecoder(Decoder):
    needs_network = False

    def nll(self, process, prediction, x0, x_eps, eps):
        if not isinstance(process, CoxIngersollRoss):
            raise refuse_decoder(self, process)
        return -process.law(x_eps, process.tau(eps, x_eps)).log_prob(x0)
