"""Find phrases that we have agreed to avoid, and say what to write instead.

usage: check_words.py [PATH ...]           Markdown pages; docstrings and strings of Python files; exits 1 on a finding
       check_words.py --report PATH ...    the same as a work list, with a count of each phrase; always exits 0

Without a path the pages of the repository and the package are checked. `ALLOWED` has the exceptions, as exact lines of
text.
"""

from __future__ import annotations

import bisect
import collections
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "docs",
    "benchmarks/README.md",
    "papers/README.md",
    ".github",
    "core/README.md",
    "core/src",
    "latent/README.md",
    "latent/src",
)

# pattern (a regular expression; a space matches any white space) -> what to write instead
PHRASES = {
    # runs
    r"(go|goes|going|gone|went) on with": "resume, continue",
    r"go on\b": "continue, resume",
    r"(as it was )?at first": "the original; at the start",
    r"(left|leaves?|leaving) the finite numbers": "diverged (NaN or inf)",
    r"(carry|carries|carried) on": "continue",
    r"taken? up again": "resumed, restored",
    r"begun": "started",
    # requirements and refusals
    r"of no use without": "requires",
    r"refus(e|es|ed|ing|al|als)": "reject; raise an error",
    r"not to be had": "cannot be estimated; is not available",
    r"at hand": "available",
    r"(is|are|be|was|has to be|have to be) given again": "pass it again",
    r"told so": "gets an error",
    r"ask(s|ed)? nobody|asks? for nothing|asks? the network": "makes no network requests",
    # judgements
    r"judg(e|es|ed|ing|ement)": "check, test, evaluate, diagnose",
    r"slips?(?= (in|of|are|that)\b)|the slips": "error, mistake",
    r"mend(s|ed|ing)?": "fix, correct",
    r"yardstick": "baseline, reference",
    r"is no(t a)? small matter": "matters",
    r"no(ne of \S+)? business": "not its task",
    # models
    r"manners": "interface; scikit-learn-compatible",
    r"fitted bit by bit": "fitted incrementally",
    r"(its|their) kin": "the other ...; similar",
    r"the like\b": "similar; for example",
    r"people come with": "ready-made",
    r"(get|gets|getting) about": "explore",
    # old or unusual words
    r"beside\b": "next to; compared with; in addition to",
    r"besides": "in addition (to)",
    r"afresh|anew": "again; new; redraw",
    r"seldom": "rarely",
    r"for nothing": "at no cost",
    r"thereof|therein|whereof|wherein|hereby|upon": "of it, in it, on",
    r"alike": "similar; in the same way",
    r"as ever": "as usual",
    r"in the place of": "instead of",
    r"made again": "reproduced, recomputed",
    r"mak(e|es|ing) [^.]{0,40} again": "reproduce, recompute",
    r"known of": "known about",
    r"hand(s|ed|ing)? (\S+ )?(over|on|out)\b": "pass, return, yield",
    r"front door": "top level of the package",
    r"lie upon|stands? beside|stood still": "overlap; is next to; did not move",
    r"dear(er)?\b": "expensive",
    r"go(es)? red": "fails",
    r"gladly": "",
    r"(set-up|setup|compiling) apart": "excluding set-up",
    r"laid into": "projected to",
    r"shar(e|es|ed) out": "distribute, divide, match",
    r"by the clock": "in wall time, per second",
    r"asked for": "requested",
    r"now and then": "from time to time",
    r"(will|would|does) do(?=[.;:,)])": "is enough, works",
    r"(is|are|was|were) said\b(?! to)": "is documented; we say",
    r"whoever": "a reader, a caller, a process that",
    r"looked at": "examined, read",
    r"(has|have|had|not) arrived": "converged, reached the mode",
    r"without a word|no word": "without a warning; no output",
    r"a quarter of a minute": "15 seconds",
    r"thrown away": "discarded",
    r"a wide berth|in the first place|not a little|as the case may be": "",
    r"to begin with": "first; at the start",
    r"(is|are) level( with)?": "equals; is constant",
    r"(take|takes|taken|taking|took) (\S+ ){0,3}out of": "subtract from, remove from",
    r"(the|a|its|their|whose|stationary|exact|right|wrong|same|invariant) laws?": "distribution",
    r"speaks? of": "refers to",
    r"but for(?= (the|those|a|its|what|upper|samplers|one)\b)": "except",
    r"ever more": "increasingly many",
    # "a" for "per"
    r"(steps?|draws?|ratings|passes|rows?|gradients?|normals?|bytes|samples|values?|iterations?|documents?)"
    r" an? (second|step|chain|row|draw|run|pass|parameter|document|stratum|shard|worker|device|batch|epoch)": "per",
}
# the same, found anywhere, not only as whole words
MARKS = {r"[«»]": '"..."', r'"{3}(Of|By|As|For) [^\n]{0,60}\."{3}': 'a complete phrase, such as "The number of ..."'}
ALLOWED: dict[str, tuple[str, ...]] = {
    # file, relative to the repository: exact pieces of text in which a phrase may stand
    "benchmarks/README.md": ("set-up apart", "Set-up apart"),  # names of lines that the program prints
    "core/src/scirocco/models/inputs/tables.py": ("refuse",),  # the value of an argument
    "latent/src/scirocco_latent/lda/embedded.py": ("until upon use",),  # stop words
    "core/src/scirocco/models/regression/linear.py": ("refuse",),
    "core/src/scirocco/models/regression/logistic.py": ("refuse",),
    "core/src/scirocco/models/regression/generalised.py": ("refuse",),
    "core/src/scirocco/models/_core/view.py": ("judged",),  # an attribute
}

_WHOLE = [rf"\b(?:{phrase})\b" for phrase in PHRASES] + list(MARKS)
_PATTERN = re.compile(
    "|".join(f"(?P<p{number}>{phrase})" for number, phrase in enumerate(_WHOLE)).replace(" ", r"\s+"), re.IGNORECASE
)
_SUGGESTIONS = [*PHRASES.values(), *MARKS.values()]
_FENCE = re.compile(r"^\s*(`{3,})(\w*)")
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_BETWEEN = {
    tokenize.NL,
    tokenize.COMMENT,
    getattr(tokenize, "FSTRING_START", tokenize.NL),
    getattr(tokenize, "FSTRING_END", tokenize.NL),
}

_QUOTES = re.compile(r"""^[a-z]*(["'])(?!\1\1)|(?<!["'])["']$""", re.IGNORECASE)
"""Around a string of one line: a phrase may run from one string into the next."""

Piece = tuple[int, str]
"""The number of a line, and text that starts there."""


def prose_of_page(text: str) -> list[list[Piece]]:
    """A Markdown page as one text; fenced blocks are left out, but for Python, which readers copy."""
    kept: list[Piece] = []
    fence, shown = "", True
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if found and not fence:
            fence, shown = found[1], found[2] == "python"
        elif found and found[1] == fence and not found[2]:
            fence, shown = "", True
        kept.append((number, (line if shown else "") + "\n"))
    return [kept]


def prose_of_program(text: str) -> list[list[Piece]]:
    """The docstrings and strings of a Python file; those that follow each other are one text."""
    groups: list[list[Piece]] = [[]]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _STRINGS:
            lines = _QUOTES.sub("", token.string).splitlines(keepends=True)
            groups[-1] += [(token.start[0] + offset, line) for offset, line in enumerate(lines)]
        elif token.type not in _BETWEEN:
            groups.append([])
    return [group for group in groups if group]


def findings(path: pathlib.Path) -> Iterator[tuple[int, str, int]]:
    """(line, words, number of the phrase) of everything to be avoided in a file."""
    text = path.read_text(encoding="utf-8")
    allowed = ALLOWED.get(path.relative_to(ROOT).as_posix(), ()) if path.is_relative_to(ROOT) else ()
    groups = prose_of_program(text) if path.suffix == ".py" else prose_of_page(text)
    for pieces in groups:
        starts, joined = [], ""
        for _, piece in pieces:
            starts.append(len(joined))
            joined += piece
        for words in allowed:
            joined = joined.replace(words, " " * len(words))
        for match in _PATTERN.finditer(joined):
            line = pieces[bisect.bisect_right(starts, match.start()) - 1][0]
            number = int((match.lastgroup or "p0")[1:])
            yield line, " ".join(match[0].split()), number


def files(paths: list[str]) -> Iterator[pathlib.Path]:
    """Pages and programs below some paths."""
    for path in map(pathlib.Path, paths):
        inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        yield from (p.resolve() for p in inside if p.suffix in (".md", ".py", ".yml"))


def main(arguments: list[str]) -> int:
    """Print `file:line: "words": write ...` for each finding."""
    report = arguments[:1] == ["--report"]
    paths = arguments[report:] or [str(ROOT / page) for page in PAGES]
    counts: collections.Counter[int] = collections.Counter()
    for path in files(paths):
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, words, number in findings(path):
            print(f'{shown}:{line}: "{words}": write {_SUGGESTIONS[number] or "it without"}')
            counts[number] += 1
    if report:
        phrases = [*PHRASES, *MARKS]
        for number, count in counts.most_common():
            print(f"{count:6}  {phrases[number]}")
    if counts:
        print(f"{counts.total()} phrases to replace", file=sys.stderr)
    return 0 if report or not counts else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
