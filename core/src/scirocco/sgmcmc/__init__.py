"""The six functions of R's package `sgmcmc`, with its arguments, for users of that package.

`sgld`, `sghmc` and `sgnht`, and with control variates `sgldcv`, `sghmccv` and `sgnhtcv`. All draw the whole chain and
return a dict like `params`, arrays (nIters, ...). For chains that are too large to store, use R's step-by-step
interface: `sgld_setup` (and one for each of the others), `init_sess`, `sgmcmc_step`, `get_params`. Every argument and
function has R's name and its snake_case form.

Arguments
---------
logLik : function (params, dataset) -> number
    The log likelihood SUMMED over the rows in `dataset`, a batch of them, written with `jax.numpy`.
dataset : dict of arrays
    One row per datum along the first axis of each.
params : dict of arrays or numbers
    The starting point of the chain (with control variates: of the search for the mode).
stepsize : number or dict
    One for all parameters, or one for each by name, in R's units. With ε for the step size elsewhere in scirocco it is
    h = 2ε for `sgld`, η = ε² for `sghmc` and `sgnht`.
optStepsize : number, optional
    Control variates only: step size of the gradient descent to the mode. By default the mode is found automatically.
logPrior : function (params) -> number, optional
    Flat by default.
minibatchSize : int or float
    Rows per step, or, between 0 and 1, their share of all rows.
alpha, L : number or dict, int
    `sghmc` only: friction per step, 0 < alpha <= 1 (None: set from the measured gradient noise), and the number of
    steps per iteration, after which the momentum is redrawn.
a : number or dict
    `sgnht` only: diffusion per step, 0 < a <= 1 (None: set from the curvature).
nIters, nItersOpt : int
    Iterations to keep; steps of the gradient descent to the mode (10,000 by default).
verbose : bool
    Show a progress bar (on a terminal), and print the seed if none was given.
seed : int, optional
    The same seed gives the same chain. By default a new one each time.

Differences from R: batches are contiguous blocks of rows that were shuffled once, visited in a new random order each
epoch (R draws new rows for each step; the blocks are unbiased too, faster and never noisier); all parameters move
together, with one gradient (R moves them in turn); new momenta have variance η (R's last versions draw them with η/2).
"""

from scirocco.sgmcmc.functions import (
    Session,
    Setup,
    get_params,
    init_sess,
    sghmc,
    sghmc_setup,
    sghmccv,
    sghmccv_setup,
    sgld,
    sgld_setup,
    sgldcv,
    sgldcv_setup,
    sgmcmc_step,
    sgnht,
    sgnht_setup,
    sgnhtcv,
    sgnhtcv_setup,
)

step = sgmcmc_step

sgldSetup, sghmcSetup, sgnhtSetup = sgld_setup, sghmc_setup, sgnht_setup
sgldcvSetup, sghmccvSetup, sgnhtcvSetup = sgldcv_setup, sghmccv_setup, sgnhtcv_setup
initSess, sgmcmcStep, getParams = init_sess, sgmcmc_step, get_params

__all__ = [
    "Session",
    "Setup",
    "getParams",
    "get_params",
    "initSess",
    "init_sess",
    "sghmc",
    "sghmcSetup",
    "sghmc_setup",
    "sghmccv",
    "sghmccvSetup",
    "sghmccv_setup",
    "sgld",
    "sgldSetup",
    "sgld_setup",
    "sgldcv",
    "sgldcvSetup",
    "sgldcv_setup",
    "sgmcmcStep",
    "sgmcmc_step",
    "sgnht",
    "sgnhtSetup",
    "sgnht_setup",
    "sgnhtcv",
    "sgnhtcvSetup",
    "sgnhtcv_setup",
    "step",
]
