"""FittedAttributes: the attributes that an estimator has after a fit, read from its fitted model."""

from typing import Any

from sklearn.utils import estimator_html_repr
from torch import Tensor

from unfade.data.columns import Column
from unfade.data.encoder import FeatureEncoder
from unfade.data.support_gaps import SupportGap
from unfade.inference.fitted_model import FittedModel
from unfade.inference.held_out import HeldOut
from unfade.inference.notebook import fitted_html
from unfade.models.architectures import AnyArchitecture
from unfade.models.kinds import in_words
from unfade.models.latent_variable import Ensemble
from unfade.training.loop import History


class FittedAttributes:
    """Attributes of a fitted estimator, read from its `model_`."""

    def __str__(self) -> str:
        posterior = self.posterior_ if hasattr(self, "_fitted") else None
        return repr(self) + (f"\n{in_words(posterior)}" if posterior is not None else "")

    @property
    def model_(self) -> FittedModel:
        """Fitted model."""
        raise NotImplementedError

    def _html_repr(self) -> str:
        """Write the facts of a fit for notebooks, above what scikit-learn shows of an estimator."""
        facts = fitted_html(self.model_) if hasattr(self, "_fitted") else ""
        return f"{facts}{estimator_html_repr(self)}"

    @property
    def noise_(self) -> Any:
        """Noise level in the units of the data: one number if all columns share it, else an array with one per column.

        None if it was inferred for each sample; if it grows with the value, the level at the mean of the data.
        """
        return self.model_.noise

    @property
    def noise_law_(self) -> tuple[float, float] | None:
        """a and b of sd = a + b x^2, if noise is "learn-by-value"; else None."""
        return self.model_.noise_law

    @property
    def seed_(self) -> int:
        """Seed of the fit, on which draws depend unless another is given."""
        return self.model_.seed

    @property
    def columns_(self) -> tuple[Column, ...] | None:
        """Columns of the frame that was fitted on, with their kinds; None for arrays."""
        return self.model_.columns

    @property
    def encoder_(self) -> FeatureEncoder:
        """Encoder of entries of the data as features of the posterior."""
        return self.model_.encoder

    @property
    def posterior_(self) -> Ensemble | None:
        """Posterior; None if no entry varies."""
        return self.model_.posterior

    @property
    def architecture_(self) -> AnyArchitecture:
        """Sizes of the networks."""
        return self.model_.architecture

    @property
    def histories_(self) -> tuple[History, ...]:
        """Training histories, one per stage."""
        return self.model_.histories

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C ended training."""
        return self.model_.interrupted

    @property
    def calibration_scale_(self) -> Tensor | None:
        """Calibration scale of each feature, (features,); None if draws are not scaled."""
        return self.model_.calibration

    @property
    def held_out_(self) -> HeldOut | None:
        """Observed cells that training held out, with draws of their observable values; None if it held out none."""
        return self.model_.held_out

    @property
    def support_gaps_(self) -> tuple[SupportGap, ...]:
        """Missing cells outside the support of the observed ones, which held-out cells cannot judge."""
        return self.model_.support_gaps
