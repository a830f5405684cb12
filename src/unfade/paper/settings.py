"""Conditions of supplement C, the schedules of the experiments, and the numbers printed in the paper."""

from dataclasses import dataclass, replace

from unfade.methods.registry import PAPER_TRAINING
from unfade.training.loop import TrainingConfig

NOISE = 0.1  # sd of the noise on data in [0, 1]


@dataclass(frozen=True)
class Schedule:
    """Lengths and sizes of an experiment.

    training: of every method; inference: of the network for the ELBO of the truth; train_rows, test_rows: number of
    first rows (None: all); scored: rows whose draws are scored; n_candidates: proposals per resampled draw; classified:
    training before classification (None: `training`); classifier_steps: of the classifiers.
    """

    training: TrainingConfig
    inference: TrainingConfig
    train_rows: int | None = None
    test_rows: int | None = None
    scored: int = 1000
    draws: int = 50
    n_candidates: int = 200
    classified: TrainingConfig | None = None
    classifier_steps: int = 5000
    votes: int = 400


SCHEDULES = {
    # To the letter; the rate is printed as 2^-4, most likely 2e-4.
    "paper": Schedule(
        replace(PAPER_TRAINING, check_every=500),  # nothing is looked at in between
        TrainingConfig(steps=20_000, batch_size=200, learning_rate=5e-4),
    ),
    # As many samples seen in ten times fewer steps; the rate falls to zero over the second half.
    "equal": Schedule(
        TrainingConfig(steps=50_000, batch_size=200, learning_rate=5e-4),
        TrainingConfig(steps=10_000, batch_size=200, learning_rate=5e-4),
        classified=TrainingConfig(steps=20_000, batch_size=100, learning_rate=5e-4),
    ),
    # What two cores do in an hour for a few models.
    "short": Schedule(
        TrainingConfig(steps=5_000, batch_size=128, learning_rate=1e-3),
        TrainingConfig(steps=2_000, batch_size=200, learning_rate=1e-3),
        scored=500,
        classifier_steps=2_000,
        votes=50,
    ),
    # Enough to see that everything works; the figures mean little.
    "quick": Schedule(
        TrainingConfig(steps=20, batch_size=50, learning_rate=1e-3),
        TrainingConfig(steps=20, batch_size=50, learning_rate=1e-3),
        train_rows=600,
        test_rows=200,
        scored=50,
        draws=10,
        n_candidates=20,
        classifier_steps=100,
        votes=10,
    ),
}

# Supplement D.3: ELBO of the truth, mean and spread over 5 masks, by (data, share missing).
TABLE_1 = {
    ("mnist", 0.2): {"MVAE": (883, 2), "MIWAE": (940, 3), "TAE": (1831, 8)},
    ("mnist", 0.5): {"MVAE": (870, 6), "MIWAE": (917, 4), "TAE": (1719, 7)},
    ("mnist", 0.8): {"MVAE": (803, 15), "MIWAE": (780, 6), "TAE": (1536, 14)},
    ("fashion-mnist", 0.2): {"MVAE": (775, 4), "MIWAE": (815, 4), "TAE": (1407, 24)},
    ("fashion-mnist", 0.5): {"MVAE": (757, 1), "MIWAE": (800, 7), "TAE": (1326, 7)},
    ("fashion-mnist", 0.8): {"MVAE": (723, 7), "MIWAE": (766, 8), "TAE": (1094, 13)},
    ("uci-har", 0.2): {"MVAE": (611, 3), "MIWAE": (628, 10), "TAE": (1039, 11)},
    ("uci-har", 0.5): {"MVAE": (585, 4), "MIWAE": (613, 6), "TAE": (1014, 6)},
    ("uci-har", 0.8): {"MVAE": (471, 10), "MIWAE": (584, 8), "TAE": (854, 52)},
}
MNAR = {"MVAE": 428, "TAE": 638}  # supplement D.2: a visible window of 10 x 10
