"""`sc.models.LDA`: topic models with posterior draws."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.models._core.chain import HostChains
from scirocco.models._core.device import DEVICES, HOST
from scirocco.models._core.length import AskedDraws
from scirocco.models._core.model import StepSize
from scirocco.models._core.program import FitOptions
from scirocco.models._core.view import View
from scirocco.run.progress import as_callbacks
from scirocco.run.records import Record
from scirocco.run.result import Run
from scirocco.store import holds_run, open_stored
from scirocco_latent.lda import guiding, sharded
from scirocco_latent.lda.chain import Task, TopicChain, program
from scirocco_latent.lda.corpus import Corpus, Documents
from scirocco_latent.lda.guiding import Labels, SeedWords
from scirocco_latent.lda.incremental import Incremental
from scirocco_latent.lda.model import usual_draws
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.settings import PRESETS, Size, TopicSettings, resolve
from scirocco_latent.lda.streams import DocumentStream
from scirocco_latent.lda.texts import column_of
from scirocco_latent.lda.tokeniser import Tokeniser


class LDA(Incremental):
    r"""Latent Dirichlet allocation: ω_k ~ Dir(β), η_d ~ Dir(α), z ~ η_d, w ~ ω_z; posterior draws of the topics ω.

    Follows scikit-learn's conventions (`fit`, `transform`, `components_`, `get_params`, pipelines), and in
    addition provides draws of every topic and credible intervals for every word.

    With memory, the model stores the topic of every token and draws the topics given all of them: an exact Gibbs
    sampler at the cost of a minibatch method. A chain starts with few documents, where passes are cheap, and some spare
    topics. It discards the worst topics once it uses all documents; later draws are from the posterior given all of
    them. Without memory (a stream, or a sampler of the papers), batches estimate the counts of the corpus, and the
    sampler uses these estimates.

    Parameters
    ----------
    num_topics
        K, the number of topics.
    alpha
        Dirichlet concentration of topics in documents: a number, or one per topic.
    beta
        Dirichlet concentration of words in topics.
    sampler
        "auto" (default): "gibbs" with memory, "scir" without. "gibbs": collapsed Gibbs, exact and in parallel threads
        (`scirocco_latent.lda.word_groups`); needs the fewest passes and the least time per pass. "scir": with memory, a
        Gibbs sampler that draws the topics; without memory, the stochastic CIR process. Without memory also:
        "scir_cv", "sgrld", "sgrhmc", "sghmc", "sgld" (expanded mean), "sgld_natural", "sgld_cv" (expanded natural
        parametrisation).
    memory
        "documents", "none", or "auto": documents with "gibbs" and "scir", none with the others and for streams.
    batch_size
        Number of documents in a batch, which is a step. None: 500; with "gibbs" all documents, or as many as have 1.5
        million tokens.
    sweeps, burn_in
        Sweeps over the documents of a batch, and how many of them are discarded. With memory, the sweeps continue from
        the stored topics, and none is discarded.
    growth, spare_topics
        With memory: initial stages (documents, passes) of a chain, such as [(1000, 60), (4000, 15)], "auto", or None;
        small corpora have no stages with "auto", but the best of several short runs as their start. And the number of
        additional topics in them (by default a fifth of `num_topics`, on an accelerator none).
    step_size
        h, a number or a schedule such as `sc.schedules.polynomial(0.5, 10.0, 0.33)`, in the units of the sampler; not
        used with memory. By default SCIR's schedule; for the other samplers, a step size that depends on the corpus
        (`scirocco_latent.lda.stochastic_chain`).
    refresh_every, refresh_size
        For "scir_cv": steps between two references, and the number of documents of each.
    options
        Options of a Langevin sampler: {"friction": ...} of "sghmc" and "sgrhmc", {"optimise_steps": ...} of "sgld_cv".
    learn_alpha, learn_beta
        With memory: draw α (one value per topic) and β as well, with Gamma(1, 1) priors; `alpha` and `beta` are the
        initial values.
    num_samples
        Number of posterior draws per chain; a short run gives fewer. None: 100, of large models fewer (at least 20).
    num_burnin
        Length of the burn-in, whose draws are discarded: steps (int), or a fraction of the run (float below 1). It
        always includes the growth, which takes at most half of a run, and one pass after it.
    thin
        Steps between two draws. None: the draws are spread evenly over the run after the burn-in.
    num_chains, seed, num_threads
        Number of independent chains; the same seed gives the same draws for any `num_threads`. Two by default, not four
        as for other models: one chain already uses all cores, so that each further one costs as much as the first,
        and two are enough to see whether the topics depend on where a chain began.
    tokeniser
        How texts become words: a `Tokeniser`, a function from a text to a list of words, or the language of the stop
        words; by default `Tokeniser()`. Not used for counts and lists of words.
    seed_words, seed_weight
        Words that a topic should have, {"sport": ["game", "team"], ...}: the first topics, in this order, have these
        names, and a larger β for these words. Each counts as `seed_weight` tokens of the word; by default 1 % of the
        tokens of an average topic, at least 10. The other topics are free.
    device
        "auto": an accelerator if JAX has one, otherwise the compiled kernels of the CPU. "cpu", "gpu"; "jax": the array
        programs on JAX's default device, whatever it is. On an accelerator "scir" and "gibbs" with memory are one exact
        Gibbs sampler, which draws ω given z and then, for all tokens at once, η and z; a step is a pass over the
        documents, and `batch_size` is not used. "scir" without memory and "scir_cv" run there too, the others do not.

    Attributes
    ----------
    components_
        Posterior mean of the topics, (topics, words); rows sum to one.
    alpha_, beta_
        The given values, or posterior means if they are learned.
    shares_
        Posterior mean of the shares of the topics in the tokens.
    draws_
        {"topics": draws with the axes (chain, draw, topic, word)}, in memory or read from disk when indexed; the topics
        of all chains are in the order of the first.
    run_
        The run, with the draws as each chain made them; `run_.stats["shares"]` are shares of the topics in the tokens.
    vocabulary_
        The words, if known.
    topic_names_
        Names of the first topics: those of `seed_words`, then the labels.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.poisson([4, 4, 0, 0], (60, 4)), rng.poisson([0, 0, 4, 4], (60, 4))])
    >>> lda = sc.models.LDA(2, beta=0.5, batch_size=40, seed=1).fit(X, num_epochs=20, progress=False)
    >>> lda.components_.shape, bool(np.allclose(lda.components_.sum(axis=1), 1))
    ((2, 4), True)
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    def __init__(
        self,
        num_topics: int = 100,
        *,
        alpha: ArrayLike = 0.1,
        beta: float = 0.05,
        sampler: str = "auto",
        memory: str = "auto",
        batch_size: int | None = None,
        sweeps: int | None = None,
        burn_in: int | None = None,
        growth: str | Sequence[tuple[int, int]] | None = "auto",
        spare_topics: int | None = None,
        step_size: StepSize = None,
        refresh_every: int = 5,
        refresh_size: int = 1000,
        options: dict[str, Any] | None = None,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        num_samples: int | None = None,
        num_burnin: float = 0.5,
        thin: int | None = None,
        num_chains: int = 2,
        seed: int = 0,
        num_threads: int | None = None,
        device: str = "auto",
        tokeniser: Tokeniser | Callable[[str], Iterable[str]] | str | None = None,
        seed_words: SeedWords | None = None,
        seed_weight: int | None = None,
    ):
        self.num_topics, self.alpha, self.beta = num_topics, alpha, beta
        self.sampler, self.memory, self.batch_size = sampler, memory, batch_size
        self.sweeps, self.burn_in, self.growth, self.spare_topics = sweeps, burn_in, growth, spare_topics
        self.step_size, self.refresh_every, self.refresh_size = step_size, refresh_every, refresh_size
        self.options, self.learn_alpha, self.learn_beta = options, learn_alpha, learn_beta
        self.num_samples, self.num_burnin, self.thin = num_samples, num_burnin, thin
        self.num_chains, self.seed, self.num_threads, self.device = num_chains, seed, num_threads, device
        self.tokeniser, self.seed_words, self.seed_weight = tokeniser, seed_words, seed_weight

    def fit(
        self,
        X: Documents | DocumentStream,
        y: object = None,
        *,
        vocabulary: Vocabulary = None,
        column: str | None = None,
        encoding: str = "utf-8",
        labels: Labels | None = None,
        validation: Documents | None = None,
        continue_from: LDA | str | os.PathLike[str] | None = None,
        client: object = None,
        num_shards: int | None = None,
        steps_per_exchange: int = 1,
        **options: Unpack[FitOptions],
    ) -> LDA:
        """Sample topics from the posterior given documents.

        Parameters
        ----------
        X
            Texts: a list or column of strings, a data frame or the path of a table (CSV, TSV, JSON lines, Parquet) with
            `column`, a text file with a document per line, or a folder of `.txt` files. Or word counts in any format of
            `scirocco_latent.lda.as_corpus`. Or a `DocumentStream`, whose documents are read when needed and not stored.
        y
            Ignored; see `labels`.
        vocabulary
            The words in the order of their ids. By default the names of the columns of a data frame of counts; the
            words of texts are learned.
        column, encoding
            The column of a table that has the texts, and the encoding of files.
        labels
            For each document a label, a list of labels, or None (labelled LDA); or the name of the column of `X` that
            has them. Each label is a topic with this name, which only documents with the label have; they also have the
            topics that are no label. A document with None has all topics.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. In a pass (epoch) as many documents
            are visited as there are; visits of the growth count as others do, and the short runs from which chains of
            small corpora start are not counted. By default `num_samples` times `thin` steps after the burn-in if
            `thin` is given. Otherwise with memory the growth and 20 to 400 passes, the more the smaller the corpus (200
            on an accelerator), and 20 without memory.
        validation
            Documents to score while the chains run: their perplexity is shown and kept in `run_.scores`.
        continue_from
            A fitted model, or the folder of one: the chains start from its topics. `X` has all
            documents of the new posterior, so documents can be added, changed or left out (forgotten); new words are
            added to the vocabulary unless `vocabulary` is given. With the same documents, settings and seed, the chains
            continue bit for bit, as one long run; use `num_burnin=0` then.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        client
            A `distributed.Client`, or the address of a Dask scheduler: the local steps, which are most of the work, run
            on its workers, without memory. The draws are the same as with memory="none" in one process, for any number
            of workers and even if some are killed. Workers read the corpus by its path, which must be visible to them;
            a corpus in memory is written once, next to the store or to the folder of temporary files.
        num_shards
            Number of tasks per step; by default one per worker thread.
        steps_per_exchange
            ℓ: the counts of a batch are used for ℓ steps of the schedule, with samplers "scir" and "scir_cv". Given the
            counts, ℓ steps of the CIR process of size h have exactly the distribution of one step of size ℓh, which is
            made instead: the chain is that of step size ℓh with one estimate per step. Reusing counts adds no further
            error, but the longer step does: the excess stationary variance of θ, Var(â) tanh(ℓh/2), grows with ℓ.
        """
        _checks.positive_int(self.num_topics, "num_topics", minimum=2)
        former = continue_from if isinstance(continue_from, LDA | None) else LDA.load(continue_from)
        corpus = self._documents(X, vocabulary, former, column, encoding)
        changes = {} if client is None else sharded.changes(self.get_params(), isinstance(X, DocumentStream))
        on_device, resumes = _checks.choice(self.device, "device", DEVICES), options.get("resume", False)
        if on_device == "auto" and _checks.flag(resumes, "resume") and _is_on_host(options.get("store")):
            changes["device"] = HOST  # as the stored chains, even if there is an accelerator now
        changes |= {} if former is None else {"growth": None}
        if isinstance(labels, str):
            labels = column_of(X, labels, encoding)
        guide = guiding.guide(self.seed_words, self.seed_weight, labels, corpus, self.num_topics)
        changes |= {} if guide is None else guide.changes(self.get_params() | changes)
        settings = self._settings(size_of(corpus), steps_per_exchange=steps_per_exchange, **changes)
        asked = self._asked(options, num_samples=usual_draws(self.num_topics * corpus.vocabulary_size))
        names = {"topic_names": [] if guide is None else list(guide.names)}
        start = None
        if former is not None:
            start = former._start(corpus, settings, asked.num_chains, asked.seed, guide)
        task = Task(
            corpus,
            settings,
            asked.seed,
            asked.num_chains,
            self.growth,
            self._words_of(corpus) | names,
            start=start,
            guide=guide,
        )
        if validation is not None:
            watch = self._watcher(validation, corpus, settings, corpus.tokeniser)
            options["callbacks"] = (*as_callbacks(options.get("callbacks", ())), watch)
        with sharded.counting_on(client, num_shards, corpus, settings, options.get("store")) as counting:
            self._sampled(task._replace(counting=counting), options, asked)
        self.tokeniser_ = corpus.tokeniser
        vars(self).pop("_online", None)
        return self

    def _sampled(self, task: Task, options: FitOptions, asked: AskedDraws) -> None:
        """Run the chains of a task, of which the first part of a known length is growth; keep where they end."""
        made: list[TopicChain] = []
        chains = program(task, made)
        length = chains.length(asked, options)
        if length.num_steps is not None:
            chains = program(task, made, task.growth_for(length.num_steps))
            if not length.is_default:
                options = {**options, "num_steps": length.num_steps, "num_epochs": None}
        elif task.start is not None:
            chains = program(task, made, task.start.growth)
        self._run(chains, options, asked)
        if self.run_.path is None:
            self._arrays = HostChains(made, chains.spec).save()

    def fit_transform(self, X: Documents, y: object = None, **options: Any) -> np.ndarray:
        """`fit`, then `transform` of the same documents."""
        where = {name: options[name] for name in ("column", "encoding") if name in options}
        shares: np.ndarray = self.fit(X, y, **options).transform(X, **where)
        return shares

    def _view(self, run: Run, **options: Any) -> View:
        from scirocco_latent.lda import view

        known = ("documents", "groups", "column", "encoding")
        return view.view(self, run, **{name: options[name] for name in known if name in options})

    # -- inside -------------------------------------------------------------------------------------------------------

    def _settings(self, size: Size, **changes: Any) -> TopicSettings:
        return resolve(self.get_params() | changes, size)


def _is_on_host(store: str | os.PathLike[str] | None) -> bool:
    """Whether there is a stored fit whose chains run with compiled kernels."""
    if store is None or not holds_run(store):
        return False
    return Record.from_json(open_stored(store).record).configuration.get("device") == HOST


def size_of(corpus: Corpus | DocumentStream) -> Size:
    """The size by which settings are resolved."""
    if isinstance(corpus, DocumentStream):
        return Size(corpus.num_documents, corpus.vocabulary_size, streamed=True)
    return Size(corpus.num_documents, corpus.vocabulary_size, corpus.num_tokens)
