"""Commands for topic models: fit, show, transform, compare."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np

from scirocco.cli import _common
from scirocco.cli._common import JSON, drafted, print_json, say, typer
from scirocco.cli._models import Fitting, Opened, Shown, chosen, fit_command, open_fit, show_command
from scirocco.errors import InvalidValueError
from scirocco_latent.commands import topics_fit, topics_tables

_NAMES = ("mean", "low", "high")

topics_app = typer.Typer(
    help="Topic models with a posterior: every word of every topic has a credible interval.\n\n"
    "Example: scirocco topics fit, which fits twenty topics to the docstrings of the installed scientific packages, in "
    "under a minute."
)

_RUN = typer.Argument(help="The folder of a fitted topic model.", metavar="RUN", show_default=False)
_CORPUS_HELP = (
    "Text: .csv, .tsv, .jsonl or .parquet with --column, one document per line, or a folder of .txt files; or counts: "
    "UCI docword, .mtx (both also .gz), sparse .npz, a data folder."
)
_COLUMN = typer.Option("--column", metavar="NAME", help="The column of a table that has the texts.")
_ENCODING = typer.Option("--encoding", metavar="NAME", help="Encoding of text files and tables.")


@fit_command(topics_app, out=None)
def fit(
    fitting: Fitting,
    corpus: Annotated[
        Path | None,
        typer.Argument(
            help=f"{_CORPUS_HELP} By default the docstrings of the installed scientific packages.",
            metavar="CORPUS",
            show_default=False,
        ),
    ] = None,
    num_topics: Annotated[
        int | None, typer.Option("--topics", min=2, help="Number of topics; 100 by default, 20 without CORPUS.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Folder for the run; required with CORPUS.")
    ] = None,
    vocabulary: Annotated[Path | None, _common.VOCABULARY] = None,
    column: Annotated[str | None, _COLUMN] = None,
    encoding: Annotated[str, _ENCODING] = "utf-8",
    language: Annotated[
        str,
        typer.Option(
            "--language", metavar="NAME", help="For text: language of the stop words (auto, english, ..., none)."
        ),
    ] = "auto",
    ngrams: Annotated[
        int, typer.Option("--ngrams", min=1, max=3, help="For text: phrases of up to so many words.")
    ] = 1,
    min_documents: Annotated[
        int | None,
        typer.Option(
            "--min-documents",
            min=1,
            help="For text: keep words in at least so many documents (default: 5, of few documents 2 or 1).",
        ),
    ] = None,
    max_share: Annotated[
        float, typer.Option("--max-share", help="For text: keep words in at most this share of documents.")
    ] = 0.5,
    seed_words: Annotated[
        Path | None,
        typer.Option(
            "--seed-words",
            metavar="FILE",
            help='Words that topics should have, .toml or .json: sport = ["game", "team"].',
        ),
    ] = None,
    seed_weight: Annotated[
        int | None, typer.Option("--seed-weight", min=1, help="Each seed word counts as so many tokens (chosen).")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="NAME",
            help="The column of a table that has the label of each text: each label is a topic.",
        ),
    ] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", help="Dirichlet parameter of topics in documents.")] = None,
    beta: Annotated[float | None, typer.Option("--beta", help="Dirichlet parameter of words in topics.")] = None,
    sampler: Annotated[
        str | None,
        typer.Option("--sampler", metavar="NAME", help="auto (default: gibbs), scir, scir_cv, sgrld, sgrhmc, ..."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="Settings of a paper: patterson2013, baker2018, barile2024."),
    ] = None,
    step_size: Annotated[
        float | None,
        typer.Option("--step-size", help="For samplers without memory; by default chosen from the corpus."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="auto (default: an accelerator if there is one), cpu, gpu."),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option("--held-out", help="Share of documents held out to compute perplexity (0.01; 0 for none)."),
    ] = None,
    continue_from: Annotated[
        Path | None,
        typer.Option(
            "--continue-from",
            metavar="RUN",
            help="Start from the topics of this run; CORPUS has all documents, earlier and new.",
        ),
    ] = None,
) -> None:
    """Fit a topic model and store its draws in the folder RUN as it runs, so that they survive Ctrl-C or a crash.

    Example: scirocco topics fit docword.kos.txt.gz --topics 50 --chains 2 --out kos
    """
    given = chosen(num_topics=num_topics, alpha=alpha, beta=beta, sampler=sampler, step_size=step_size, device=device)
    words = topics_fit.Words(vocabulary, min_documents, max_share, column, encoding, language, ngrams)
    guiding = topics_fit.Guiding(seed_words, seed_weight, labels)
    topics_fit.run(
        topics_fit.TopicsRequest(
            *(fitting._replace(out=out), corpus, words, preset, fitting.settings | given),
            *(held_out, continue_from, guiding),
        )
    )


@show_command(topics_app, "topics")
def shown(
    opened: Opened,
    words: Annotated[int, typer.Option("--words", min=1, help="Words to show per topic.")] = 10,
    topic: Annotated[
        list[int] | None, typer.Option("--topic", metavar="K", help="Only this topic; may be repeated.")
    ] = None,
) -> Shown:
    """Show the topics of a run, largest first: words, weights, credible intervals, and R-hat with several chains.

    You can use it while the run is being fitted. R-hat is the largest of the share of a topic and of its first five
    words, after matching the topics of the chains; near 1 the chains agree.

    Example: scirocco topics show kos --words 8
    """
    return topics_tables.shown_topics(opened, words, topic)


@topics_app.command("transform")
def topics_transform(
    run: Annotated[Path, _RUN],
    corpus: Annotated[Path, typer.Argument(help=_CORPUS_HELP, metavar="CORPUS", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to write; must end in .npz or .csv.", show_default=False)
    ],
    interval: Annotated[
        float | None,
        typer.Option("--interval", min=0.01, max=0.999, help="Also write credible intervals with this probability."),
    ] = None,
    column: Annotated[str | None, _COLUMN] = None,
    encoding: Annotated[str, _ENCODING] = "utf-8",
    overwrite: Annotated[bool, _common.REPLACE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Write the share of each topic in each document, as a table documents × topics.

    A .npz file contains `mean` (and `low`, `high`); a .csv file one line per document, or with --interval one per
    document and topic. Text is read with the vocabulary of the run.

    Example: scirocco topics transform kos docword.kos.txt.gz --out shares.csv --interval 0.9
    """
    from scirocco_latent.lda.prediction import share_pieces
    from scirocco_latent.lda.texts import open_corpus

    _common.check_target(out, (".npz", ".csv"), overwrite)
    model = open_fit(run, group="topics").model
    opened = open_corpus(
        corpus, model._known(), column=column, encoding=encoding, tokeniser=model._split_by(), may_be_empty=True
    )
    if not as_json:
        for note in opened.corpus.notes:
            say(note)
    pieces = share_pieces(opened.corpus, model._some_draws(), model._fold_in(), interval)
    _write_shares(out, pieces, opened.names)
    shape = (opened.corpus.num_documents, model.num_topics)
    if as_json:
        notes = list(opened.corpus.notes)
        print_json({"run": str(run), "path": str(out), "shape": shape, "interval": interval, "notes": notes})
    else:
        say(f"{shape[0]:,} documents × {shape[1]} topics in {out}")


def _write_shares(path: Path, pieces: Iterable[tuple[np.ndarray, ...]], names: Sequence[str] | None) -> None:
    """Pieces of one table (means), or of three (means and bounds), each documents × topics; CSV one after the other."""
    with drafted(path) as draft:
        if path.suffix == ".npz":
            arrays: dict[str, Any] = dict(zip(_NAMES, map(np.concatenate, zip(*pieces, strict=True)), strict=False))
            if names is not None:
                arrays["documents"] = np.array(names)
            np.savez_compressed(draft, **arrays)
            return
        with open(draft, "w", newline="", encoding="utf-8") as file:
            _write_csv(file, pieces, names)


def escaped(name: str) -> str:
    """The name of a document as text in a spreadsheet, which would compute one that begins like a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def _write_csv(file: TextIO, pieces: Iterable[tuple[np.ndarray, ...]], names: Sequence[str] | None) -> None:
    row, done = csv.writer(file, lineterminator="\n").writerow, 0
    for tables in pieces:
        num_documents, num_topics = tables[0].shape
        if not done and len(tables) == 1:
            row(["document", *(f"topic_{k}" for k in range(num_topics))])
        elif not done:
            row(["document", "topic", *_NAMES])
        for d in range(num_documents):
            label = done + d if names is None else escaped(names[done + d])
            if len(tables) == 1:
                row([label, *(f"{share:.6g}" for share in tables[0][d])])
                continue
            for k in range(num_topics):
                row([label, k, *(f"{table[d, k]:.6g}" for table in tables)])
        done += num_documents


@topics_app.command("compare")
def topics_compare(
    first: Annotated[Path, _RUN],
    second: Annotated[Path, _RUN],
    corpus: Annotated[
        Path | None, typer.Option("--corpus", metavar="CORPUS", help="Documents on which to compute both perplexities.")
    ] = None,
    limit: Annotated[
        float, typer.Option("--limit", min=0.0, max=1.0, help="Largest distance between matched topics.")
    ] = 0.5,
    words: Annotated[int, typer.Option("--words", min=1, help="Words to show per topic.")] = 4,
    column: Annotated[str | None, _COLUMN] = None,
    encoding: Annotated[str, _ENCODING] = "utf-8",
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Match the topics of two runs one to one; show their distances and the unmatched topics.

    Distances are Hellinger distances, from 0 (equal) to 1 (disjoint words). Perplexity is that of hidden words given
    the other words of their documents; lower is better.

    Example: scirocco topics compare kos kos-2 --corpus docword.kos.txt.gz
    """
    from scirocco_latent.lda.describing import compare, same_words

    one, other = (open_fit(path, group="topics").model for path in (first, second))
    if corpus is not None and not same_words(one, other):
        raise InvalidValueError(
            "perplexities over two vocabularies cannot be compared: leave --corpus out, or fit both runs with the same "
            "--vocabulary."
        )
    held = None if corpus is None else one._read(corpus, column, encoding)
    found, models, paths = compare(one, other, limit), (one, other), (first, second)
    if as_json:
        scores = None if held is None else [model.perplexity(held) for model in models]
        print_json(topics_tables.comparison_as_json(found, models, paths, words) | {"perplexity": scores})
        return
    topics_tables.print_comparison(found, models, paths, words)
    if held is not None:
        for path, model in zip(paths, models, strict=True):
            say(f"perplexity of {path} on {corpus}: {model.perplexity(held):,.1f}")
