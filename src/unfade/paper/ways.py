"""The ways to draw that experiments compare: a method, how it is trained, and what is done with its posterior."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from unfade.corruption.noise import GaussianNoise
from unfade.models.architectures import AUTHORS_HABITS, Architecture
from unfade.paper.settings import NOISE
from unfade.training.loop import TrainingConfig

HABITS: dict[str, dict[str, Any]] = {
    "ours": {},
    "sigmoid": {"bounded": True},
    "xavier": {"xavier": True},
    "author": AUTHORS_HABITS,
    "author, free means": {**AUTHORS_HABITS, "bounded": False, "prior_bounded": False},
}
UNMODELLED = 1e-6  # sd of noise that vanishes next to that of any decoder


@dataclass(frozen=True)
class Way:
    """A way to draw: the method that trains for it, with closed-form conditioning or not, resampled or not.

    stopped: training ends by early stopping, at most after all steps. blind: the model knows of no noise, so that the
    decoder's variance has to hold it. habits: of building networks, a name in HABITS; with the author's, gradients are not
    clipped. settings: of the method.
    """

    method: str
    conditioned: bool
    refined: bool = False
    stopped: bool = False
    blind: bool = False
    habits: str = "ours"
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def trained(self) -> "Way":
        """What is trained for it: equal for ways that draw from one model."""
        return replace(self, conditioned=False, refined=False)

    @property
    def infers(self) -> bool:
        """Whether the noise level is inferred row by row."""
        return dict(self.settings).get("infer_noise", False)

    def architecture(self, usual: Architecture) -> Architecture:
        """Return networks of these habits."""
        return replace(usual, **HABITS[self.habits])

    def training(self, usual: TrainingConfig) -> TrainingConfig:
        """Return how to train. With early stopping, entries are held out during 0.7 of the steps at most."""
        how = replace(usual, steps=max(1, int(0.7 * usual.steps))) if self.stopped else usual
        return replace(how, clip_norm=inf) if self.habits.startswith("author") else how

    def noise(self, known: bool) -> GaussianNoise:
        """Return the noise of the model."""
        if self.blind:
            return GaussianNoise(UNMODELLED)
        return GaussianNoise(NOISE) if known else GaussianNoise(0.3, learn=True)


WAYS = {
    "MVAE": Way("mvae", conditioned=False),
    "MIWAE": Way("miwae", conditioned=False),
    "MIWAE, conditioned": Way("miwae", conditioned=True),
    "MIWAE, conditioned, resampled": Way("miwae", conditioned=True, refined=True),
    "TAE as printed": Way("tae-paper", conditioned=False),
    "unfade": Way("auto", conditioned=True, stopped=True),
    "unfade, resampled": Way("auto", conditioned=True, refined=True, stopped=True),
}
# The paper leaves open whether its baselines model the noise, where means may lie, and how networks are built.
READINGS = {
    "MVAE, noise ignored": Way("mvae", conditioned=False, blind=True),
    "MIWAE, noise ignored": Way("miwae", conditioned=False, blind=True),
    "MVAE, noise ignored, sigmoid": Way("mvae", conditioned=False, blind=True, habits="sigmoid"),
    "MIWAE, noise ignored, sigmoid": Way("miwae", conditioned=False, blind=True, habits="sigmoid"),
    "MVAE, noise ignored, author's habits": Way("mvae", conditioned=False, blind=True, habits="author"),
    "MIWAE, noise ignored, author's habits": Way("miwae", conditioned=False, blind=True, habits="author"),
    "TAE, author's habits": Way("tae-paper", conditioned=False, habits="author"),
    "TAE, author's habits, free means": Way("tae-paper", conditioned=False, habits="author, free means"),
    "TAE, Xavier's weights": Way("tae-paper", conditioned=False, habits="xavier"),
    "TAE, noise inferred": Way("tae-paper", conditioned=False, settings=(("infer_noise", True),)),
    "TAE, exact bound": Way("tae", conditioned=True, stopped=True),
}
ALL_WAYS = {**WAYS, **READINGS}
# The strongest baseline as unfade is trained, for scoreboards.
STOPPED = {
    "MIWAE, stopped": Way("miwae", conditioned=True, stopped=True),
    "MIWAE, stopped, resampled": Way("miwae", conditioned=True, refined=True, stopped=True),
}
FLOW = {"flow": Way("flow", conditioned=False, stopped=True)}
