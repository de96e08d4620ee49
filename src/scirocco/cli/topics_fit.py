"""`scirocco topics fit`: from the options to a stored run."""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scirocco._console import print_wrapped
from scirocco._extras import require
from scirocco.cli._common import Length, check_fit, how_to_resume, interrupted_early, print_json, say, typer
from scirocco.cli._exit import INTERRUPTED, ending_with_its_draws
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.models.lda.corpus import Corpus
    from scirocco.models.lda.estimator import LDA
    from scirocco.models.lda.tokeniser import Tokeniser

_EMBEDDED, _EMBEDDED_HELD_OUT = {"num_topics": 20}, 0.02
_MOST_SHOWN, _WORDS_SHOWN = 20, 6


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


class Request(NamedTuple):
    """The options of the command. `options` has the arguments of `sc.models.LDA` that were given."""

    corpus: Path | None = None
    out: Path | None = None
    words: Words = Words()
    length: Length = Length()
    preset: str | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    seed: int = 0
    held_out: float | None = None
    resume: bool = False
    overwrite: bool = False
    as_json: bool = False
    continue_from: Path | None = None
    guiding: Guiding = Guiding()

    def say(self, words: str) -> None:
        """Print a message, wrapped at the width of the terminal; to stderr if stdout is JSON."""
        if self.as_json:
            say(words, file=sys.stderr, flush=True)
        else:
            print_wrapped(words)
            sys.stdout.flush()


def run(request: Request) -> None:
    """Fit, then show the topics."""
    require("numba", "fitting a topic model")  # before anything is read
    model = _model(request)
    _check(request, model)
    corpus = _corpus(request)
    labels = _labels(request)
    if request.corpus is None and request.held_out is None:
        request = request._replace(held_out=_EMBEDDED_HELD_OUT)
    if request.out is not None:
        _fit(request, model, corpus, labels, request.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        _fit(request, model, corpus, labels, Path(folder) / "run")
    request.say("Nothing was kept; `scirocco topics fit --out RUN` keeps the draws.")


def _check(request: Request, model: LDA) -> None:
    """Reject options that cannot work, before any data are read."""
    from scirocco.models._core.length import check_length
    from scirocco.models.lda.settings import Size, resolve

    if request.corpus is not None and request.out is None:
        raise InvalidValueError("--out is missing: add --out RUN, the name of a new folder for the run.")
    if request.resume and request.out is None and not request.overwrite:
        raise InvalidValueError("--resume requires --out RUN, the folder of the run.")
    check_fit(request.out, request.length, request.resume, request.overwrite)
    check_length(*request.length, num_rows=1, batch_size=1)
    resolve(model.get_params(), Size(1, 1))


def _model(request: Request) -> LDA:
    from scirocco.models import LDA

    options = (_EMBEDDED if request.corpus is None else {}) | request.options | {"seed": request.seed}
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


def _labels(request: Request) -> list[Any] | None:
    from scirocco.models.lda.texts import table_column

    name = request.guiding.labels
    if name is None:
        return None
    if request.corpus is None:
        raise InvalidValueError("--labels requires a CORPUS: a table with --column.")
    return table_column(request.corpus, name, request.words.encoding)


def _corpus(request: Request) -> Corpus:
    from scirocco.models import LDA
    from scirocco.models.lda.continuing import with_new_words
    from scirocco.models.lda.corpus import as_corpus
    from scirocco.models.lda.embedded import embedded_corpus
    from scirocco.models.lda.texts import open_corpus

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
        request.corpus,
        words.vocabulary,
        column=words.column,
        encoding=words.encoding,
        tokeniser=split,
        known=known,
    ).corpus
    if former is None:
        return corpus
    return with_new_words(corpus, None, former.vocabulary_, former.n_features_in_)


def _tokeniser(words: Words) -> Tokeniser:
    from scirocco.models.lda import Tokeniser

    return Tokeniser(
        language=None if words.language == "none" else words.language,
        min_documents=words.min_documents,
        max_share=words.max_share,
        ngrams=words.ngrams,
    )


def _fit(request: Request, model: LDA, corpus: Corpus, labels: list[Any] | None, folder: Path) -> None:
    from scirocco.cli import topics_tables
    from scirocco.models.lda.describing import summarise
    from scirocco.models.lda.prediction import hold_out, kept_numbers

    fitted, held = hold_out(corpus, request.held_out, request.seed)
    kept_back = f"; {held.num_documents:,} more are held out" if held is not None else ""
    size = (
        f"{fitted.num_documents:,} documents, {corpus.vocabulary_size:,} words, {fitted.num_tokens:,} tokens"
    )
    for note in (size + kept_back, *corpus.notes):
        request.say(note)
    if labels is not None and held is not None:
        kept = kept_numbers(corpus.num_documents, held.num_documents, request.seed)
        labels = [labels[number] for number in kept]
    status = _sample(request, model, fitted, labels, held, folder)
    shown, level = summarise(model, _WORDS_SHOWN), model._level(0.9)
    score = None if held is None else model.perplexity(held)
    if request.as_json:
        print_json(topics_tables.as_json(folder, model, shown, level) | {"perplexity": score})
    else:
        topics_tables.print_overview(model, shown[:_MOST_SHOWN], level)
        if held is not None:
            say(f"perplexity of the {held.num_documents:,} documents held out: {score:,.1f}")
        if request.out is not None:
            say(f"All topics: scirocco topics show {folder}")
    if status == "interrupted":
        _say_how_to_go_on(request, folder)


def _sample(
    request: Request,
    model: LDA,
    fitted: Corpus,
    labels: list[Any] | None,
    held: Corpus | None,
    folder: Path,
) -> str:
    """Run the chains; the status of the run."""
    from scirocco.store import holds_run

    try:
        with ending_with_its_draws():
            model.fit(
                fitted,
                **request.length._asdict(),
                labels=labels,
                validation=held,
                continue_from=request.continue_from,
                store=folder,
                resume=request.resume,
                overwrite=request.overwrite,
            )
    except KeyboardInterrupt:
        if not holds_run(folder):
            request.say("A run with --seconds keeps nothing before its burn-in is over.")
        # a run interrupted in its burn-in has no topics to show, but it can be resumed
        if not interrupted_early(folder):
            raise
        _say_how_to_go_on(request, folder)
    return model.run_.status


def _say_how_to_go_on(request: Request, folder: Path) -> None:
    if request.out is not None:
        request.say(how_to_resume(folder))
    raise typer.Exit(INTERRUPTED)
