"""Common code of models with their own chains: length of a fit, chains, store, resuming and saving."""

from scirocco.models.fits.chains import Chain, HostChains, Spec, states_of
from scirocco.models.fits.conventions import Conventions, renamed_arguments
from scirocco.models.fits.drive import Fit, run_fit
from scirocco.models.fits.length import (
    Length,
    check_burnin,
    check_draws,
    check_length,
    planned_steps,
)
from scirocco.models.fits.saved import Kind, Loaded, load, model_in, need_draws, notes, save, to_arviz

__all__ = [
    "Chain",
    "Conventions",
    "Fit",
    "HostChains",
    "Kind",
    "Length",
    "Loaded",
    "Spec",
    "check_burnin",
    "check_draws",
    "check_length",
    "load",
    "model_in",
    "need_draws",
    "notes",
    "planned_steps",
    "renamed_arguments",
    "run_fit",
    "save",
    "states_of",
    "to_arviz",
]
