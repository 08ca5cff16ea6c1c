"""Control: conditions, guidance, constraints and steering, and the right law at the end."""

from unnoise.guidance import targets, twists
from unnoise.guidance.automata import Automaton, regular
from unnoise.guidance.classifier import ClassifierGuided
from unnoise.guidance.classifier_free import ClassifierFree
from unnoise.guidance.classifiers import NoisyClassifier, ThroughPosterior, fit_classifier
from unnoise.guidance.given import Given, Unconditional
from unnoise.guidance.grammars import Grammar, grammar
from unnoise.guidance.inequalities import Between
from unnoise.guidance.languages import Language
from unnoise.guidance.operators import Blur, Downsampling, Inpainting, LinearOperator, Matrix
from unnoise.guidance.places import AllowedCategories
from unnoise.guidance.posterior_sampling import PosteriorSampling
from unnoise.guidance.twists import Twist

__all__ = [
    "AllowedCategories",
    "Automaton",
    "Between",
    "Blur",
    "ClassifierFree",
    "ClassifierGuided",
    "Downsampling",
    "Given",
    "Grammar",
    "Inpainting",
    "Language",
    "LinearOperator",
    "Matrix",
    "NoisyClassifier",
    "ThroughPosterior",
    "PosteriorSampling",
    "Twist",
    "Unconditional",
    "fit_classifier",
    "grammar",
    "regular",
    "targets",
    "twists",
]
