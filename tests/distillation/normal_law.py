"""The exact denoiser of a normal law, for the tests of distillation."""

import unnoise as un

MEAN, VARIANCE = 0.7, 0.36
PROCESS = un.Gaussian((1,), un.schedules.Cosine())


class Exact(un.AnyDenoiser):
    """The denoiser of N(MEAN, VARIANCE)."""

    def __init__(self, process=PROCESS, shift: float = 0.0):
        super().__init__()
        self.process, self.shift, self.kinds = process, shift, un.Velocity

    def forward(self, x_t, t, **condition):
        alpha, sigma = (
            self.process.coefficient(c, x_t) for c in (self.process.schedule.alpha(t), self.process.schedule.sigma(t))
        )
        gain = alpha * VARIANCE / (alpha**2 * VARIANCE + sigma**2)
        return un.Clean(MEAN + self.shift + gain * (x_t - alpha * MEAN), self.process, x_t, t)
