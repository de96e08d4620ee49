"""Rules of the diagnosis: which problem explains the numbers, and what to change."""

from __future__ import annotations

import math
from typing import Any

from scirocco.analysis.diagnosis.probing import Theory
from scirocco.analysis.diagnosis.report import Finding
from scirocco.diagnostics.chains import r_hat_in_digits
from scirocco.run.certificate import DIVERGENT, Certificate

TOLERATED = 0.2
"""Relative excess of a variance above which it is reported: a tenth of the standard deviation."""
_WANTED = 400  # effective draws that advice aims at
_LARGER = 4.0
"""The step size counts as too small if it could be this many times as large."""
APART = 1.0
"""Distance between chains, in sds within them, above which they may be in different modes."""
_UNDER_WAY = 2.5
"""Trend, in sds, above which the chains have not converged yet."""
_HARDLY_ANY = 20  # effective draws of a chain that has settled
_MEAN_OFF, _SD_OFF = 0.2, 0.12
"""Limits of a certificate without troubles for means (in sds) and sds below which no further explanation is sought."""
_PULL = 2.0
"""The prior may move the posterior by this many posterior sds."""
_WILD = 10.0  # relative excess of variances beyond which draws tell nothing of the prior
FAR_OUT = 4.0
"""A posterior may be this many prior sds out. A prior that bounds a parameter without a finite mode has fewer."""


def find_faults(measures: dict[str, Any], theory: Theory | None, about: dict[str, Any]) -> list[Finding]:
    """All problems. `about`: facts about the run (`diverged`, `tuned`, `batch_size`, ...)."""
    if measures.get("stuck"):
        return [_stuck(measures["stuck"])]
    good = not about["diverged"] and _is_acceptable(about["certificate"])
    law = [] if good else _law(measures, theory, about)
    mixing = [] if good else _mixing(measures, theory, about, bool(law))
    if any(finding.name == "not converged" for finding in mixing) and measures["trend"] > _UNDER_WAY:
        return mixing  # draws before convergence tell nothing about the target or the prior
    found = law + mixing
    pull = measures.get("prior_pull", 0.0)
    far_out = measures.get("prior_distance", 0.0)
    wild = measures.get("stein_inflation", 0.0) > _WILD  # draws are where neither prior nor data want them
    if pull > _PULL and far_out > FAR_OUT and measures["ess_bulk"] > _HARDLY_ANY and not wild:
        place = measures["prior_pull_parameter"]
        found.append(
            Finding(
                "prior and data disagree",
                f"the prior and the data disagree about {place}: the prior's scale looks wrong",
                f"The prior alone moves {place} by {pull:.1f} posterior standard deviations (one that suits the data "
                f"moves it by less than one), and its draws are {_far(far_out)} out in the prior.",
                f"Check the prior of {place}: its scale is much smaller than the data suggest, or the log prior is "
                "multiplied by something (it must not be scaled by the number of rows or the batch). Widen it unless "
                "it is meant to be that strong.",
            )
        )
    return found


def _is_acceptable(certificate: Certificate | None) -> bool:
    """Whether the scores at the draws confirm their means and standard deviations, whatever the closed forms say.

    These are for the worst direction, which may not matter for any parameter.
    """
    if certificate is None or certificate.mean_error is None or certificate.sd_error is None:
        return False
    return certificate.ok and certificate.mean_error <= _MEAN_OFF and certificate.sd_error <= _SD_OFF


def unexplained(certificate: Certificate | None) -> list[Finding]:
    """The troubles of a certificate for which nothing else was found."""
    if certificate is None or certificate.ok:
        return []
    evidence = f"{'. '.join(trouble[:1].upper() + trouble[1:] for trouble in certificate.troubles)}."
    if certificate.measures.get("divergent", 0.0) > DIVERGENT:
        words = "trajectories diverge: part of the posterior is not explored"
        advice = "Use a non-centred form, or shorter steps: sampler=sc.NUTS(target_acceptance=0.99)."
        return [Finding("trajectories diverge", words, evidence, advice)]
    words = "the gradients at the draws do not confirm their means and standard deviations"
    advice = "Halve the step size and see whether the difference halves; if not, use more draws and a longer burn-in."
    return [Finding("gradients disagree", words, evidence, advice)]


def several_modes(modes: list[dict[str, Any]]) -> Finding:
    """The search before the run found more than one mode."""
    places = "; ".join(f"{mode['at']} ({mode['mass']:.0%})" for mode in modes[:4])
    return Finding(
        "several modes",
        f"the posterior has at least {len(modes)} modes, and chains do not move between them",
        f"Modes, with their share of the mass by the curvature there: {places}.",
        "If they are mirror images (labels, signs), remove the symmetry: order the parameters "
        "(sc.transforms.ordered) or bound them. Otherwise the draws are conditional on the first mode.",
    )


def _stuck(names: list[str]) -> Finding:
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return Finding(
        "step size too small",
        f"{shown} {'does' if len(names) == 1 else 'do'} not move at all: the step size is too small, or 0 in effect",
        f"All draws of {len(names)} parameter{'s' * (len(names) > 1)} are exactly equal.",
        'Use step_size="auto"; check the step size of that parameter, and whether the model uses it.',
    )


def _law(measures: dict[str, Any], theory: Theory | None, about: dict[str, Any]) -> list[Finding]:
    """Problems of the stationary distribution."""
    if about["diverged"]:
        change = "" if theory is None else f" Use step_size={theory.suggested:.2g} (now {theory.step_size:.2g})."
        return [
            Finding(
                "step size too large",
                "the step size is too large: the chain diverged (NaN or inf)",
                f"The run ended as diverged after {about['num_draws']:,} draws per chain.",
                f'Lower the step size.{change} Or use step_size="auto".',
            )
        ]
    if theory is None:
        return _law_without_theory(measures, about)
    seen = _seen(measures)
    if theory.step > TOLERATED and theory.step >= theory.noise:
        size = "without bound" if math.isinf(theory.step) else f"by about {theory.step:.0%}"
        return [
            Finding(
                "step size too large",
                f"the step size is too large: variances in the stiffest direction are inflated {size}",
                f"{_product(theory)} = {theory.stiffness:.2g} (the limit of stability is "
                f"{'4' if theory.friction is not None else '2'}).{seen}",
                f"Use step_size={theory.suggested:.2g} instead of {theory.step_size:.2g}{_or_auto(about)}.",
            )
        ]
    if theory.noise <= TOLERATED:
        return _law_without_theory(measures, about)
    inflated = f"variances are inflated by about {theory.noise:.0%}"
    place = measures.get("noise_inflation_parameter") or "the worst direction"
    if theory.friction is not None:
        return [
            Finding(
                "friction too small",
                f"friction too small: {inflated}",
                f"Friction {theory.friction:.3g}; the gradient noise needs {theory.friction_needed:.3g} for 5 % "
                f"({place}).{seen}",
                _damped(theory, about),
            )
        ]
    return [
        Finding(
            "minibatch noise dominates",
            f"minibatch noise dominates: {inflated}{_remedy(about)}",
            f"In a step the gradient noise adds {theory.noise_ratio:.2g} times the injected variance "
            f"({place}); the step alone would add {theory.step:.1%}.{seen}",
            _quieter(theory, about),
        )
    ]


def _law_without_theory(measures: dict[str, Any], about: dict[str, Any]) -> list[Finding]:
    """Problems that only Stein's identity detects: samplers without closed forms, posteriors far from normal."""
    excess, error = measures.get("stein_inflation", 0.0), measures.get("stein_inflation_error", math.inf)
    if about["check"].too_few or about["check"].disagree or abs(excess) <= TOLERATED or not abs(excess) > 5 * error:
        return []
    way = "large" if excess > 0 else "small"
    return [
        Finding(
            "variances do not fit",
            f"variances are too {way} by about {abs(excess):.0%}: the draws are inconsistent with the gradients",
            f"Stein's identity with the gradients at the draws gives {excess:+.1%} ± {error:.1%}; curvature and noise "
            "at the mean of the draws do not explain it.",
            "Halve the step size and see whether the difference halves; if not, the sampler's noise correction or its "
            'preconditioner is wrong for this posterior: try sc.SGLD(step_size="auto") with sc.ControlVariates.',
        )
    ]


def _mixing(
    measures: dict[str, Any], theory: Theory | None, about: dict[str, Any], law_is_wrong: bool
) -> list[Finding]:
    """Problems of mixing; one of three."""
    check = about["check"]
    if "ess_bulk" not in measures or "drift" not in measures:
        return []
    ess, (r_hat, r_hat_of) = check.ess, check.r_hat
    bad = check.too_few or check.disagree
    drift, spread = measures["drift"], measures["chain_spread"]
    place = measures["ess_bulk_parameter"]
    facts = f"{ess:,.0f} effective draws of {place}, R-hat {r_hat_in_digits(r_hat)}, drift between halves "
    facts += f"{drift:.2f} sd"
    under_way = bad and measures["trend"] > _UNDER_WAY
    settled = measures.get("ess_of_one_chain", 0.0) > _HARDLY_ANY and spread > 3 * drift
    if check.disagree and spread > APART and settled:
        return [
            Finding(
                "chains disagree",
                "the chains disagree: each stays in a different region",
                f"Means of chains are {spread:.1f} standard deviations apart, while each chain drifts by {drift:.2f} "
                f"(R-hat {r_hat_in_digits(r_hat)} for {r_hat_of}).",
                "The posterior has several modes, and the chains have found different ones. Fit longer (num_epochs); "
                "if they still disagree, compare their scores on held-out data and do not pool these chains."
                if about["own_loop"]
                else "The posterior has several modes, or the model is not identified (labels that can be swapped or "
                "signs that can be flipped): fix the labels with a prior or sc.transforms.ordered, start the chains at "
                "different points and compare the log densities, and do not pool these chains.",
            )
        ]
    if theory is not None and not law_is_wrong and not under_way and bad:
        factor = theory.suggested / theory.step_size
        if factor >= _LARGER:
            return [
                Finding(
                    "step size too small",
                    f"the step size is too small: it could be {factor:,.0f} times as large",
                    f"{_product(theory)} = {theory.stiffness:.2g} and gradient noise {theory.noise_ratio:.2g} of the "
                    f"injected, while 0.1 is harmless; {facts}.",
                    f"Use step_size={theory.suggested:.2g} instead of {theory.step_size:.2g}{_or_auto(about)}.",
                )
            ]
    if not bad:
        return []
    if measures.get("flat"):
        return [
            Finding(
                "not converged",
                "not converged: the posterior has no curvature in some direction of the parameters",
                f"{facts[0].upper()}{facts[1:]}. At the mean of the draws the log posterior is flat, or curves the "
                "wrong way, along some combination of parameters.",
                "Give a prior to every parameter that the data do not determine, or remove redundant ones (a column "
                "that is the sum of others, labels of all classes); centre columns that hardly vary.",
            )
        ]
    condition = measures.get("condition")
    stiff = condition is not None and condition > 100 and not about["preconditioned"]
    slow = stiff and not under_way
    shape = (
        f" Curvatures differ by a factor {condition:.2g}: the flattest direction takes that many times as long as the "
        "stiffest."
        if slow
        else ""
    )
    if about["own_loop"]:
        advice = f"Fit for {'twice' if under_way else _times(ess)} as many steps or more (num_epochs, num_steps)."
    elif under_way:
        near = "" if about["centred"] else ", or start at the mode (sc.ControlVariates does)"
        advice = f"Use num_burnin={2 * about['num_steps']:,} or more{near}."
        if stiff:
            advice += f' Curvatures differ by a factor {condition:.2g}: step_size="auto" converges faster.'
    elif slow:
        advice = f'Use step_size="auto" or sc.Preconditioned(...), then {_times(ess)} as many draws.'
    else:
        advice = f"Use {_times(ess)} as many draws."
    return [
        Finding(
            "not converged",
            "not converged: the chains still depend on their starting points"
            if under_way
            else "not converged: too few effective draws",
            f"{facts[0].upper()}{facts[1:]}.{shape}",
            advice,
        )
    ]


def _far(sds: float) -> str:
    return f"{sds:.1f} of its standard deviations" if math.isfinite(sds) else "far"


def _or_auto(about: dict[str, Any]) -> str:
    return "" if about["tuned"] else ', or step_size="auto"'


def _times(ess: float) -> str:
    return f"{max(2, min(100, math.ceil(_WANTED / max(ess, 1.0))))} times"


def _seen(measures: dict[str, Any]) -> str:
    if "stein_inflation" not in measures:
        return ""
    excess, error = measures["stein_inflation"], measures["stein_inflation_error"]
    return f" Stein's identity with the gradients at the draws gives {excess:.0%} ± {error:.0%} on average."


def _product(theory: Theory) -> str:
    return "Step size² × largest curvature" if theory.friction is not None else "Step size × largest curvature"


def _remedy(about: dict[str, Any]) -> str:
    return ": use control variates" if about["plain"] else ""


def _damped(theory: Theory, about: dict[str, Any]) -> str:
    """Advice on friction and step size, whose product must stay below 1."""
    assert theory.friction_needed is not None
    left_out = "omit `friction` (it is then set from the measured noise, which is corrected for)"
    if theory.friction_needed * theory.step_size <= 0.5:
        return f"Use friction={theory.friction_needed:.2g}, or {left_out}{_less_noise(about)}."
    smaller = f"step_size={theory.suggested:.2g} instead of {theory.step_size:.2g}"
    return f"Use {smaller} and {left_out}{_less_noise(about)}."


def _less_noise(about: dict[str, Any]) -> str:
    if _remedy(about):
        return f", or reduce the noise with estimator=sc.ControlVariates({about['batch_size']})"
    return ", or use larger batches"


def _quieter(theory: Theory, about: dict[str, Any]) -> str:
    smaller = f"step_size={theory.suggested:.2g} instead of {theory.step_size:.2g}"
    if _remedy(about):
        return f"Use estimator=sc.ControlVariates({about['batch_size']}), or {smaller}."
    needed = (about["batch_size"] or 1) * theory.noise / 0.05  # infinite in a direction without curvature
    if needed > about["num_rows"] / 2:
        far = " The centre of the control variates may be far from the mode." if about["centred"] else ""
        return f"Use {smaller}.{far}"
    return f"Use batches of {math.ceil(needed):,} rows, or {smaller}."
