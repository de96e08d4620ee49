"""Analysis of draws: distances to the target, better estimates, diagnosis, tuning, scores, theory."""

from __future__ import annotations

from scirocco.analysis.calibrating import SBC, sbc
from scirocco.analysis.comparing import Compared, Comparison, compare
from scirocco.analysis.cost import (
    LangevinSettings,
    sgld_bound,
    sgld_cv_bound,
    sgld_cv_cost,
    sgld_cv_settings,
    sgld_settings,
)
from scirocco.analysis.diagnosis import Diagnosis, Finding, diagnose
from scirocco.analysis.diagnosis.noise import NoiseCurve, noise_along
from scirocco.analysis.distances import kl_knn, ks_dirichlet, sliced_wasserstein, wasserstein
from scirocco.analysis.loo import LOO, loo
from scirocco.analysis.predictive import Checked, PredictiveCheck, predictive_check, prior_draws
from scirocco.analysis.scores import (
    Bin,
    Calibration,
    LogPredictive,
    accuracy,
    brier,
    calibration,
    log_loss,
    log_predictive,
    perplexity,
)
from scirocco.analysis.stein import Stein, ksd
from scirocco.analysis.tuning import tune
from scirocco.analysis.zero_variance import Reduction, ZeroVariance, zero_variance, zv_reduction, zv_reduction_bound
from scirocco.run.certificate import Certificate, certify
from scirocco.run.choose.race import Trial
from scirocco.run.choose.tuning import Tuning

__all__ = [
    "LOO",
    "SBC",
    "Bin",
    "Calibration",
    "Certificate",
    "Checked",
    "Compared",
    "Comparison",
    "Diagnosis",
    "Finding",
    "LangevinSettings",
    "LogPredictive",
    "NoiseCurve",
    "PredictiveCheck",
    "Reduction",
    "Stein",
    "Trial",
    "Tuning",
    "ZeroVariance",
    "accuracy",
    "brier",
    "calibration",
    "certify",
    "compare",
    "diagnose",
    "kl_knn",
    "ks_dirichlet",
    "ksd",
    "log_loss",
    "log_predictive",
    "loo",
    "noise_along",
    "perplexity",
    "predictive_check",
    "prior_draws",
    "sbc",
    "sgld_bound",
    "sgld_cv_bound",
    "sgld_cv_cost",
    "sgld_cv_settings",
    "sgld_settings",
    "sliced_wasserstein",
    "tune",
    "wasserstein",
    "zero_variance",
    "zv_reduction",
    "zv_reduction_bound",
]


def __dir__() -> list[str]:
    return __all__
