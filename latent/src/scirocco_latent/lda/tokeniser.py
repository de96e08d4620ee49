"""Texts as words: lower case, stop words by language, numbers, phrases, and which words are kept."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco._tree import name_of
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.corpus import Corpus, as_corpus
from scirocco_latent.lda.embedded import STOP_WORDS as _ENGLISH
from scirocco_latent.lda.streams import DocumentReader, stack

# how much more often than by chance, and how often, two words are a phrase
_LEAST_LIFT, _LEAST_PAIRS = 10.0, 5
_SAMPLE = 500  # texts that tell the language
_LEAST_STOP_WORDS = 0.05  # share of stop words below which a language is not recognised
WITHOUT_SPACES = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f]"
)
"""Kana, Han, Thai, Lao, Khmer and Burmese characters."""
_LETTER = re.compile(r"[^\W\d_]")
_MOST_WITHOUT_SPACES = 0.2  # share of letters of scripts without spaces that splits characters


@dataclass(frozen=True)
class Tokeniser:
    """How texts become words.

    Parameters
    ----------
    language
        Language of the stop words: "english", "german", "french", "spanish", "italian", "portuguese", "dutch"; "auto":
        the one that fits the texts; None: no stop words.
    stop_words
        More words to leave out.
    lower_case
        Whether texts are converted to lower case.
    numbers
        Whether words may contain digits.
    min_length
        The least number of characters of a word.
    min_documents
        A word is kept if so many documents have it. None: 5 of 500 or more documents, 2 of 20 or more, otherwise 1.
    max_share
        A word is kept if at most this share of the documents has it; not used for fewer than 20 documents.
    ngrams
        2 or 3: phrases of up to so many words become one word ("new_york"), if they occur ten times more often than by
        chance.
    function
        Your own function from a text to a list of words, instead of the rules for single words above: required for
        languages without spaces between words. It is not saved with a model.
    phrases
        The phrases, once they have been learned.

    Examples
    --------
    >>> Tokeniser(language="english").words("The FFT of a 2-D array; naïve, не быстро.")
    ['fft', 'array', 'naïve', 'быстро']
    """

    language: str | None = "auto"
    stop_words: tuple[str, ...] = ()
    lower_case: bool = True
    numbers: bool = False
    min_length: int = 3
    min_documents: int | None = None
    max_share: float = 0.5
    ngrams: int = 1
    function: Callable[[str], Iterable[str]] | None = None
    phrases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.language is not None:
            _checks.choice(self.language, "language", ("auto", *STOP_WORDS))
        _checks.positive_int(self.min_length, "min_length")
        if self.min_documents is not None:
            _checks.positive_int(self.min_documents, "min_documents")
        if not _checks.is_number(self.max_share) or not 0 < float(self.max_share) <= 1:
            raise InvalidValueError(f"`max_share` must be above 0 and at most 1, got {self.max_share}.")
        if _checks.positive_int(self.ngrams, "ngrams") > 3:
            raise InvalidValueError(f"`ngrams` must be 1, 2 or 3, got {self.ngrams}.")
        given: Any = self.stop_words
        if isinstance(given, str) or not all(isinstance(word, str) for word in given):
            raise InvalidTypeError(f"`stop_words` must be a list of words, got {self.stop_words!r}.")
        if self.function is not None and not callable(self.function):
            raise InvalidTypeError(f"`function` must be a function from a text to words, got {self.function!r}.")
        stopped = STOP_WORDS.get(self.language or "", frozenset()) | frozenset(self.stop_words)
        letters = r"[^\W_]" if self.numbers else r"[^\W\d_]"
        object.__setattr__(self, "_stopped", stopped)
        least = self.min_length if self.ngrams == 1 else 1  # short words separate phrases
        object.__setattr__(self, "_word", re.compile(letters + "{" + str(least) + ",}"))
        object.__setattr__(self, "_phrases", frozenset(self.phrases))

    def words(self, text: str) -> list[str]:
        """The words of a text, in their order."""
        return [word for word in self._joined(self._split(text)) if word]

    def _split(self, text: str) -> list[str]:
        """Single words; "" in place of stop words, which separate phrases."""
        if self.function is not None:
            given = self.function(text)
            words = [] if isinstance(given, str) else list(given)
            if isinstance(given, str) or not all(isinstance(word, str) for word in words):
                raise InvalidTypeError(
                    f"the tokeniser must return a list of words for a text, got {given!r:.80} for {text!r:.40}."
                )
            return words
        stopped: Collection[str] = self._stopped  # type: ignore[attr-defined]
        found = self._word.findall(text.lower() if self.lower_case else text)  # type: ignore[attr-defined]
        least = self.min_length
        return ["" if len(word) < least or word in stopped or word.lower() in stopped else word for word in found]

    def _joined(self, words: list[str]) -> list[str]:
        """Neighbours that are a phrase as one word, from left to right."""
        phrases: Collection[str] = self._phrases  # type: ignore[attr-defined]
        for _ in range(self.ngrams - 1 if phrases else 0):
            joined: list[str] = []
            for word in words:
                if joined and joined[-1] and word and f"{joined[-1]}_{word}" in phrases:
                    joined[-1] = f"{joined[-1]}_{word}"
                else:
                    joined.append(word)
            words = joined
        return words

    def learn(self, texts: Iterable[str], number: int) -> Tokeniser:
        """The tokeniser for these texts (`number` of them): language, limits and phrases that were left open."""
        sample = list(itertools.islice(texts, _SAMPLE)) if self.function is None else []
        self._check_spaces(sample)
        found = self
        if found.language == "auto":
            found = replace(found, language=None if self.function else _language(sample))
        if found.min_documents is None:
            found = replace(found, min_documents=5 if number >= 500 else 2 if number >= 20 else 1)
        return found

    def learn_phrases(self, texts: Callable[[], Iterable[str]]) -> Tokeniser:
        """The tokeniser with the phrases of these texts."""
        found = self
        for _ in range(self.ngrams - 1):
            single, pairs = Counter[str](), Counter[tuple[str, str]]()
            for text in texts():
                words = found._joined(found._split(text))
                single.update(words)
                pairs.update(pair for pair in itertools.pairwise(words) if pair[0] and pair[1])
            single.pop("", None)
            total = max(single.total(), 1)
            least = max(_LEAST_PAIRS, self.min_documents or 1)
            new = {
                f"{a}_{b}"
                for (a, b), n in pairs.items()
                if n >= least
                and n * total >= _LEAST_LIFT * single[a] * single[b]
                and (a + b).count("_") + 2 <= self.ngrams
            }
            found = replace(found, phrases=tuple(sorted({*found.phrases, *new})))
        return found

    def _check_spaces(self, sample: list[str]) -> None:
        """Raise an error for texts in languages that do not separate words by spaces."""
        start = "".join(sample)[:100_000]
        letters = len(_LETTER.findall(start))
        without = len(WITHOUT_SPACES.findall(start))
        if letters and without > _MOST_WITHOUT_SPACES * letters:
            raise InvalidValueError(
                "the texts are in a language without spaces between words (such as Chinese, Japanese or Thai): pass a "
                "function that splits them, LDA(..., tokeniser=jieba.lcut) for Chinese, janome's or fugashi's for "
                "Japanese, pythainlp.word_tokenize for Thai."
            )

    def as_json(self) -> dict[str, Any]:
        """The tokeniser as plain values; of an own function only its name."""
        name = None if self.function is None else name_of(self.function, "function")
        return asdict(replace(self, function=None)) | {"function": name}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Tokeniser:
        """The tokeniser of a saved model."""
        name = found.get("function")
        lists = {key: tuple(found[key]) for key in ("stop_words", "phrases")}
        return cls(**{**found, **lists, "function": None if name is None else _Missing(name)})

    @property
    def about(self) -> str:
        """What was chosen, in a few words."""
        stopped = f"{self.language} stop words" if self.language else "no stop words"
        own = f"own function `{name_of(self.function, 'function')}`" if self.function else stopped
        phrases = f", {len(self.phrases):,} phrases" if self.phrases else ""
        return f"{own}, words in at least {self.min_documents} documents{phrases}"


class _Missing:
    """The place of a function that was not saved."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, text: str) -> list[str]:
        raise InvalidValueError(
            f"the model was fitted with your own tokeniser `{self.__name__}`, and functions are not saved: pass lists "
            f"of words, or set model.tokeniser = {self.__name__} after LDA.load."
        )


def as_tokeniser(given: object) -> Tokeniser:
    """A tokeniser from what users pass: None, a `Tokeniser`, the name of a language, or a function."""
    if given is None:
        return Tokeniser()
    if isinstance(given, Tokeniser):
        return given
    if isinstance(given, str):
        return Tokeniser(language=given)
    if callable(given):
        return Tokeniser(function=given)
    raise InvalidTypeError(
        f"`tokeniser` must be a Tokeniser, a function from a text to a list of words, or a language, got {given!r:.60}."
    )


def _language(sample: list[str]) -> str | None:
    """The language whose stop words are most frequent; None if they are rare."""
    words = Counter(word for text in sample for word in re.findall(r"[^\W\d_]+", text.lower()))
    shares = {name: sum(words[word] for word in stopped) for name, stopped in STOP_WORDS.items()}
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] > _LEAST_STOP_WORDS * max(words.total(), 1) else None


def count_words(
    texts: Callable[[], Iterable[str]],
    number: int,
    tokeniser: Tokeniser,
    vocabulary: Any = None,
    known: Collection[str] = (),
    where: str = "the corpus",
    may_be_empty: bool = False,
) -> Corpus:
    """The word counts of texts, and the tokeniser with what it has learned from them (`Corpus.tokeniser`).

    `vocabulary`: exactly these words, none of which is a stop word; otherwise the words are learned, most frequent
    first. Words that are `known` are kept in any case.
    """
    if vocabulary is None:
        tokeniser = tokeniser.learn(texts(), number)
    if tokeniser.ngrams > 1 and not (tokeniser.phrases or known or may_be_empty):
        tokeniser = tokeniser.learn_phrases(texts)
    if vocabulary is not None:
        found = as_corpus((tokeniser.words(text) for text in texts()), vocabulary, may_be_empty=may_be_empty)
        return replace(found, tokeniser=tokeniser)
    reader = DocumentReader(None, None, learn=True)
    rows = stack([reader.read(Counter(tokeniser.words(text))) for text in texts()])
    if not reader.lookup:
        raise InvalidValueError(
            f"{where} has no words: {number:,} documents ({tokeniser.about}; words have at least "
            f"{tokeniser.min_length} {'characters' if tokeniser.numbers else 'letters'})."
        )
    names, kept, note = _kept(reader, rows, number, tokeniser, set(known), where)
    indptr, ids, counts = rows
    place = np.full(len(reader.lookup), -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    inside = place[ids] >= 0
    ends = np.concatenate([[0], np.cumsum(inside)])[indptr]
    sparse = require("scipy.sparse", "a corpus in memory")
    matrix = sparse.csr_array((counts[inside], place[ids[inside]], ends), shape=(number, len(kept)))
    corpus = as_corpus(matrix, names)
    return replace(corpus, notes=(f"{tokeniser.about}{note}.", *corpus.notes), tokeniser=tokeniser)


def _kept(
    reader: DocumentReader, rows: Any, number: int, tokeniser: Tokeniser, known: set[str], where: str
) -> tuple[tuple[str, ...], np.ndarray, str]:
    """The words that are kept, most frequent first and ties in alphabetical order; their ids; what was left out."""
    words = np.array(list(reader.lookup), object)
    seen_in = np.bincount(rows[1], minlength=len(words))
    total = np.bincount(rows[1], rows[2], len(words)).astype(np.int64)
    least = tokeniser.min_documents or 1
    most = tokeniser.max_share * number if number >= 20 or tokeniser.max_share != 0.5 else number
    rare, common = seen_in < least, seen_in > most
    if known:
        had = np.array([word in known for word in words])
        rare, common = rare & ~had, np.zeros_like(rare)
    kept = np.flatnonzero(~(rare | common))
    if not len(kept):
        raise InvalidValueError(
            f"{where}: none of {len(words):,} words is in at least {least} and at most {tokeniser.max_share:.0%} of "
            f"{number:,} documents, so the corpus is empty. Decrease min_documents, increase max_share, or pass a "
            "vocabulary."
        )
    kept = kept[sorted(range(len(kept)), key=lambda i: (-total[kept[i]], words[kept[i]]))]
    left = [f"{int(rare.sum()):,} rare"] if rare.any() else []
    left += [f"{int(common.sum()):,} common"] if common.any() else []
    return tuple(words[kept]), kept, f"; {' and '.join(left)} words were left out" if left else ""


# -- stop words: words of grammar, of any length


_MORE_ENGLISH = """
a an am as at be by do go he i in is it me my no of on or so to up us we said say says also would
"""
_GERMAN = """
aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei beim
bin bis bist da dabei dadurch dafür dagegen daher dahin damit dann daran darauf daraus darin darum das dass davon
dazu dein deine dem den denn der des deshalb dessen die dies diese diesem diesen dieser dieses doch dort du durch
ein eine einem einen einer eines einige einigen einmal er es etwa etwas euch euer für gegen gewesen hab habe haben
hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im immer in ins ist ja jede jedem
jeden jeder jedes jedoch jene jetzt kann kein keine keinem keinen keiner können könnte machen man manche mehr mein
meine mich mir mit muss musste müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen
seiner seit selbst sich sie sind so solche soll sollen sollte sondern sonst sowie über um und uns unser unsere unter
viel vom von vor wann war waren warum was weil weiter welche welchem welchen welcher welches wenn wer werde werden
wie wieder will wir wird wo worden wurde wurden würde würden zu zum zur zwar zwischen
"""
_FRENCH = """
a afin ai ainsi alors après as au aucun aussi autre autres aux avaient avait avant avec avoir ayant bien car ce ceci
cela celle celles celui cependant ces cet cette ceux chaque chez comme comment dans de depuis des deux donc dont du
elle elles en encore entre est et étaient était étant été être eu eux fait faire fois font furent fut hors il ils je
jusqu la là le les leur leurs lors lorsque lui ma mais me même mes moi moins mon ne ni non nos notre nous on ont ou
où par parce parmi pas pendant peu peut peuvent plus pour pourquoi puis qu quand que quel quelle quelles quels qui
quoi sa sans se sera serait ses si sien soit son sont sous suis sur ta te tes toi ton tous tout toute toutes très tu
un une vers voir vos votre vous
"""
_SPANISH = """
a al algo algunas algunos ante antes aquel aquella así aun aunque bajo bien cada casi como con contra cual cuales
cuando de del desde después donde dos durante e el él ella ellas ellos en entre era eran es esa esas ese eso esos
esta está estaba están estar estas este esto estos fue fueron ha había haber han hasta hay he la las le les lo los
más me mi mientras mis mucho muchos muy nada ni no nos nosotros o os otra otras otro otros para pero poco por porque
pues que qué quien quienes se sea según ser será si sí sido sin sobre solo sólo son su sus también tan tanto te
tener tenía ti tiene tienen todo todos tras tu tus un una unas uno unos usted ya yo
"""
_ITALIAN = """
a abbia ad agli ai al alcuni alla alle allo anche ancora avere aveva avevano ben che chi ci come con contro cosa
così cui da dagli dai dal dalla dalle dallo degli dei del della delle dello dentro di dopo dove due e è ed egli era
erano essere essi fa fatto fino fra fu furono già gli ha hai hanno ho i il in io la le lei li lo loro lui ma me mi
mia mio molto ne negli nei nel nella nelle nello noi non nostra nostro o ogni oltre per perché però più po poi prima
proprio qua quale quali quando quanto quella quelle quelli quello questa queste questi questo qui sarà se sei sembra
senza sia siamo sono sopra sotto sta stata stati stato su sua sue sugli sui sul sulla sulle suo suoi tra tu tutta
tutte tutti tutto un una uno vi voi
"""
_PORTUGUESE = """
a à ainda além algum alguma alguns ao aos apenas após aquela aquele aqui as às assim até bem cada com como contra da
das de dela dele deles depois desde dessa desse desta deste do dois dos e é ela elas ele eles em enquanto entre era
eram essa essas esse esses esta está estão estas estava este estes eu foi foram há isso isto já lhe lo mais mas me
mesmo meu minha muito muitos na nas não nem no nos nós nossa nosso num numa o onde os ou outra outras outro outros
para pela pelas pelo pelos per pode podem por porque qual quando que quem são se seja sem ser será seu seus só sobre
sua suas também tão tem têm ter tinha toda todas todo todos tudo um uma umas uns você vocês
"""
_DUTCH = """
aan al alle alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge
geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon kunnen maar me
meer men met mij mijn moet na naar niet niets nog nu of om omdat onder ons ook op over reeds te tegen toch toen tot
u uit uw van veel voor want waren was wat werd wezen wie wil worden wordt zal ze zelf zich zij zijn zo zonder zou
"""
STOP_WORDS: dict[str, frozenset[str]] = {
    "english": _ENGLISH | frozenset(_MORE_ENGLISH.split()),
    "german": frozenset(_GERMAN.split()),
    "french": frozenset(_FRENCH.split()),
    "spanish": frozenset(_SPANISH.split()),
    "italian": frozenset(_ITALIAN.split()),
    "portuguese": frozenset(_PORTUGUESE.split()),
    "dutch": frozenset(_DUTCH.split()),
}
"""Stop words by language."""
