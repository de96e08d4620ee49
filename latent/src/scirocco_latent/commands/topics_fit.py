"""`scirocco topics fit`: from the options to a stored run."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scirocco._extras import require
from scirocco.cli._common import say
from scirocco.cli._models import Fitting, Shown, open_fit
from scirocco.errors import InvalidValueError
from scirocco_latent.commands.topics_tables import shown_topics

if TYPE_CHECKING:
    from scirocco_latent.lda.corpus import Corpus
    from scirocco_latent.lda.estimator import LDA
    from scirocco_latent.lda.tokeniser import Tokeniser

# settings of a fit without a corpus, on the texts that come with the package
_EMBEDDED, _EMBEDDED_HELD_OUT = {"num_topics": 20}, 0.02
_MOST_SHOWN, _WORDS_SHOWN = 20, 6  # topics and words that are printed after a fit


class Words(NamedTuple):
    """Options for the vocabulary."""

    vocabulary: Path | None = None
    min_documents: int | None = None
    max_share: float = 0.5
    column: str | None = None
    encoding: str = "utf-8"
    language: str = "auto"
    ngrams: int = 1


class Guiding(NamedTuple):
    """Options for topics that are known in part."""

    seed_words: Path | None = None
    seed_weight: int | None = None
    labels: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Those of `LDA`."""
        words = None if self.seed_words is None else _seed_words(self.seed_words)
        return {"seed_words": words, "seed_weight": self.seed_weight}


class TopicsRequest(NamedTuple):
    """The options of the command. `options` has the arguments of `sc.models.LDA` that were given."""

    fitting: Fitting
    corpus: Path | None
    words: Words
    preset: str | None
    options: dict[str, Any]
    held_out: float | None
    continue_from: Path | None
    guiding: Guiding

    @property
    def say(self) -> Callable[[str], None]:
        """Print a message."""
        return self.fitting.say


def run(request: TopicsRequest) -> None:
    """Fit, then show the topics."""
    require("numba", "fitting a topic model")  # before anything is read
    model = _model(request)
    _check(request, model)
    corpus = _corpus(request)
    labels = _labels(request)
    if request.corpus is None and request.held_out is None:
        request = request._replace(held_out=_EMBEDDED_HELD_OUT)
    if request.fitting.out is not None:
        _fit(request, model, corpus, labels)
        return
    with tempfile.TemporaryDirectory() as folder:
        fitting = request.fitting._replace(out=Path(folder) / "run", is_kept=False)
        _fit(request._replace(fitting=fitting), model, corpus, labels)
    request.say("Nothing was kept; `scirocco topics fit --out RUN` keeps the draws.")


def _check(request: TopicsRequest, model: LDA) -> None:
    """Reject options that cannot work, before any data are read."""
    from scirocco.models._core.length import check_length
    from scirocco_latent.lda.settings import Size, resolve

    fitting = request.fitting
    if request.corpus is not None and fitting.out is None:
        raise InvalidValueError("--out is missing: add --out RUN, the name of a new folder for the run.")
    if fitting.resume and fitting.out is None and not fitting.overwrite:
        raise InvalidValueError("--resume requires --out RUN, the folder of the run.")
    fitting.check(None)
    check_length(*fitting.length, num_rows=1, batch_size=1)
    resolve(model.get_params(), Size(1, 1))


def _model(request: TopicsRequest) -> LDA:
    from scirocco.models import LDA

    options = (_EMBEDDED if request.corpus is None else {}) | request.options
    options |= request.guiding.arguments()
    return LDA(**options) if request.preset is None else LDA.preset(request.preset, **options)


def _seed_words(path: Path) -> Any:
    """A table of names and words, from TOML or JSON; `LDA` checks it."""
    if path.suffix not in (".toml", ".json"):
        raise InvalidValueError(f"--seed-words must name a .toml or .json file, got {path}.")
    from scirocco.data.formats.readers import reading

    with reading(path):
        text = path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise InvalidValueError(
            f'{path} cannot be read ({error}). Each line has a topic, such as sport = ["game", "team"] in TOML.'
        ) from error


def _labels(request: TopicsRequest) -> list[Any] | None:
    from scirocco_latent.lda.texts import table_column

    name = request.guiding.labels
    if name is None:
        return None
    if request.corpus is None:
        raise InvalidValueError("--labels requires a CORPUS: a table with --column.")
    return table_column(request.corpus, name, request.words.encoding)


def _corpus(request: TopicsRequest) -> Corpus:
    from scirocco.models import LDA
    from scirocco_latent.lda.continuing import with_new_words
    from scirocco_latent.lda.corpus import as_corpus
    from scirocco_latent.lda.embedded import embedded_corpus
    from scirocco_latent.lda.texts import open_corpus

    if request.corpus is None:
        if request.words.vocabulary is not None:
            raise InvalidValueError("--vocabulary requires a CORPUS.")
        request.say("Reading the docstrings of the installed packages ...")
        return as_corpus(*embedded_corpus())
    words = request.words
    split = _tokeniser(words)
    known: tuple[str, ...] = ()
    former = None if request.continue_from is None else LDA.load(request.continue_from)
    if former is not None and former.tokeniser_ is not None:
        split, known = former.tokeniser_, former.vocabulary_ or ()
    corpus = open_corpus(
        request.corpus, words.vocabulary, column=words.column, encoding=words.encoding, tokeniser=split, known=known
    ).corpus
    if former is None:
        return corpus
    return with_new_words(corpus, None, former.vocabulary_, former.n_features_in_)


def _tokeniser(words: Words) -> Tokeniser:
    from scirocco_latent.lda import Tokeniser

    return Tokeniser(
        language=None if words.language == "none" else words.language,
        min_documents=words.min_documents,
        max_share=words.max_share,
        ngrams=words.ngrams,
    )


def _fit(request: TopicsRequest, model: LDA, corpus: Corpus, labels: list[Any] | None) -> None:
    from scirocco_latent.lda.prediction import hold_out, kept_numbers

    fitting = request.fitting
    seed = fitting.settings["seed"]
    fitted, held = hold_out(corpus, request.held_out, seed)
    kept_back = f"; {held.num_documents:,} more are held out" if held is not None else ""
    size = f"{fitted.num_documents:,} documents, {corpus.vocabulary_size:,} words, {fitted.num_tokens:,} tokens"
    for note in (size + kept_back, *corpus.notes):
        request.say(note)
    if labels is not None and held is not None:
        labels = [labels[number] for number in kept_numbers(corpus.num_documents, held.num_documents, seed)]
    interrupted = fitting.sample(model, fitted, labels=labels, validation=held, continue_from=request.continue_from)
    found = shown_topics(open_fit(fitting.out), _WORDS_SHOWN, most=_MOST_SHOWN)
    score = None if held is None else model.perplexity(held)

    def table() -> None:
        found.table()
        if held is not None:
            say(f"perplexity of the {held.num_documents:,} documents held out: {score:,.1f}")
        if fitting.is_kept:
            say(f"All topics: scirocco topics show {fitting.out}")

    fitting.end(Shown(found.values | {"perplexity": score}, table), interrupted)
