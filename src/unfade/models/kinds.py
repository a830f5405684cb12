"""Kinds of models: what an ensemble member is, and the share of the draws that each kind gives."""

from torch import nn

from unfade.models.baselines import NearestPixels
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import Ensemble
from unfade.models.linear import LinearDecoder
from unfade.models.state_space import StateSpace
from unfade.models.trees import ChainedTrees


def kind_of(member: nn.Module) -> str:
    """Name the kind of a posterior."""
    if isinstance(member, ChainedTrees):
        return "trees"
    if isinstance(member, NearestPixels):
        return "nearest pixel"
    if isinstance(member, FlowPosterior):
        return "flow"
    if isinstance(member, StateSpace):
        return "state space"
    return "linear model" if isinstance(getattr(member, "decoder", None), LinearDecoder) else "networks"


def shares(posterior: Ensemble) -> dict[str, float]:
    """Give the share of the draws of each kind, largest first.

    Parameters
    ----------
    posterior : Ensemble

    Returns
    -------
    dict of str to float
        They add up to 1.
    """
    kinds = [kind_of(member) for member in posterior.members]
    turns = posterior.turns or range(len(kinds))
    found = {kind: sum(kinds[turn] == kind for turn in turns) / len(turns) for kind in dict.fromkeys(kinds)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def in_words(posterior: Ensemble) -> str:
    """Say how many of 16 draws each kind gives.

    Parameters
    ----------
    posterior : Ensemble

    Returns
    -------
    str
        Such as ``10 of 16 draws from networks, 6 from trees``, or ``all draws from trees``.
    """
    (first, share), *others = shares(posterior).items()
    if not others:
        return f"all draws from {first}"
    text = f"{round(16 * share)} of 16 draws from {first}"
    return ", ".join([text, *(f"{round(16 * part)} from {kind}" for kind, part in others)])


def all_of(posterior: Ensemble | None, *kinds: str) -> bool:
    """Check whether every draw comes from models of these kinds."""
    return posterior is not None and set(shares(posterior)) <= set(kinds)
