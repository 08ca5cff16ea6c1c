"""A weighting of one's own: squared errors of x_0 count alike up to a noise level, and fade beyond it.

    w(t) = 1/(1 + (s/s_0)^2),     s = sigma/alpha,

on |x_0 - x_model|^2.  A network that predicts something else than x_0 is weighed by what its error means for x_0.
"""

import unnoise as un


class Fading(un.weightings.GaussianWeighting):
    def __init__(self, level=1.0):
        self.level = level

    def on_clean(self, schedule, t):
        return 1 / (1 + (-schedule.log_snr(t)).exp() / self.level**2)
