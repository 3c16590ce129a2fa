"""Makes a captioner that knows labels of one that does not.

    python -m lab labelled --data FOLDER --out FILE [--captions FILE …]

Everything is linear and fitted in one pass: vectors of words to the sentence vectors of captions, the picture
to the mean vector of its captions, both by ridge regression. A class is read by the mean vector of what was
written of it (lab/labelled/sentences.py). models/labels/expected_meaning.py has the equations.
"""

from __future__ import annotations

import gzip
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from extractors.catalog.tuned_pair import TUNED
from extractors.features import Frames, StreamSpec
from lab.labelled.sentences import WrittenLine, list_sentences, read_lines
from lab.pictures.picture_batches import SETS, CachedNetwork, load_set
from lab.pictures.picture_inputs import PICTURE_NETWORKS
from lab.pictures.pseudo_video import sample_whole
from models.captioner import Captioner
from models.captioners.labelled.streams import PICTURE
from models.captioners.registry import captioner_class
from models.checkpoint import Card, load_captioner, save_checkpoint
from models.feature_sources.feature_source import FeatureSource
from models.labels.expected_meaning import CLASS_NAMES, LABELS, MeaningConfig
from models.labels.labelled_captioner import LabelledCaptioner, LabelledConfig, RememberedConfig
from models.stream_set import DEMO_MOTION
from models.vocabulary import SPECIALS, Vocabulary, split_words
from training.batches.archives import read_items
from training.precision import CPU
from training.scores.sentence_vectors import SentenceEncoder

NAME, WRITER = "labelled_stats", "stats"
WIDTH = 192  #: of sentence vectors, in their first principal directions
LONGEST = 11  #: words of a sentence that is recalled
OFTEN = 50  #: times that captions must have a word which the captioner did not know
WORD_RIDGE, PICTURE_RIDGE, EMBEDDING_RIDGE = 2.0, 2500.0, 30.0
KIND_WEIGHTS = (1.2, 1.0, 0.2)  #: β of motion, picture and boxes
CHUNK, SEED = 4096, 7
PER_PICTURE = 4  #: captions of a picture that are read, spread over all it has


class SentenceVectors:
    """Keeps sentence vectors by text, each computed once.

    encoder: computes them. file: keeps them from one run to the next, None for not at all.
    """

    def __init__(self, encoder: SentenceEncoder, file: Path | None = None) -> None:
        self._encoder, self._file = encoder, file
        self._vectors: dict[str, Tensor] = {}
        if file is not None and file.exists():
            with np.load(file) as archive:
                self._vectors = dict(
                    zip(archive["texts"].tolist(), torch.from_numpy(archive["vectors"]), strict=True)
                )

    def find(self, texts: Sequence[str]) -> Tensor:
        """Finds the vectors (n, D) of n texts."""
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self._vectors.update(zip(new, torch.from_numpy(self._encoder.encode(new)), strict=True))
            self._keep()
        return torch.stack([self._vectors[text] for text in texts]).float()

    def _keep(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            vectors = torch.stack(list(self._vectors.values())).half()
            np.savez(self._file, texts=np.array(list(self._vectors)), vectors=vectors.numpy())

    def average(self, texts: Sequence[Sequence[str]]) -> Tensor:
        """Averages the vectors of each row of texts: (n, D)."""
        return torch.stack([self.find(row).mean(0) for row in texts])


def solve_ridge(inputs: Tensor, targets: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Solves ridge regression of targets (n, O) on inputs (n, I): weights (I, O) and bias (O,)."""
    mean, target = inputs.mean(0), targets.mean(0)
    centred = inputs - mean
    gram = centred.T @ centred + penalty * torch.eye(inputs.shape[1])
    weights = torch.linalg.solve(gram, centred.T @ (targets - target))
    return weights, target - mean @ weights


def choose_words(vocabulary: Vocabulary, captions: Iterable[str], lines: Sequence[WrittenLine]) -> Vocabulary:
    """Adds to a captioner's words those of classes, of what was written, and frequent ones."""
    counts = Counter(word for caption in captions for word in split_words(caption))
    texts = (*CLASS_NAMES, *list_sentences(lines))
    needed = dict.fromkeys(word for text in texts for word in split_words(text))
    often = (word for word, count in counts.most_common() if count >= OFTEN and len(word) > 1)
    new = dict.fromkeys(word for word in (*needed, *often) if word not in vocabulary)
    return Vocabulary([*vocabulary.words[len(SPECIALS) :], *new])


def fit_words(vocabulary: Vocabulary, captions: Sequence[str], vectors: SentenceVectors) -> Tensor:
    """Fits vectors (V, D) of words, of whose normalised sum a caption's is made.

    Args:
        vocabulary: V words, of which rare ones are drawn to their own sentence vectors.
        captions: That are to be summed to.
        vectors: Of captions and words.
    """
    alone = vectors.find(vocabulary.words)
    gram, product, shares = torch.zeros(len(alone) ** 2), torch.zeros_like(alone), torch.zeros(2)
    for start in range(0, len(captions), CHUNK):
        texts = captions[start : start + CHUNK]
        (ids, weights), targets = count_words(vocabulary, texts), vectors.find(texts)
        guess = (weights.unsqueeze(2) * alone[ids]).sum(1)
        pairs, both = (
            ids.unsqueeze(2) * len(alone) + ids.unsqueeze(1),
            weights.unsqueeze(2) * weights.unsqueeze(1),
        )
        gram.index_add_(0, pairs.flatten(), both.flatten())
        product.index_add_(0, ids.flatten(), (weights.unsqueeze(2) * targets.unsqueeze(1)).flatten(0, 1))
        shares += torch.stack([(guess * targets).sum(), guess.square().sum()])
    start_at, counts = alone * shares[0] / shares[1], gram.view(len(alone), -1)
    penalised = counts + WORD_RIDGE * torch.eye(len(alone))
    fitted: Tensor = start_at + torch.linalg.solve(penalised, product - counts @ start_at)
    return fitted


def count_words(vocabulary: Vocabulary, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Counts each word of a text once: ids (n, t), and one over the root of their number, 0 behind them."""
    rows = [torch.tensor(sorted(set(vocabulary.encode(split_words(text))))) for text in texts]
    weights = [torch.ones(len(row)) / max(1, len(row)) ** 0.5 for row in rows]
    return pad_sequence(rows, batch_first=True), pad_sequence(weights, batch_first=True)


def extend_writer(writer: Captioner, vocabulary: Vocabulary, alone: Tensor) -> dict[str, Tensor]:
    """Gives a captioner's layers rows for new words, guessed from sentence vectors; it avoids the words.

    Args:
        writer: Knows the first words of the vocabulary.
        vocabulary: V words.
        alone: (V, D) sentence vectors of single words.

    Returns:
        Its state with V rows where it had one for each word.
    """
    size, state = len(writer.vocabulary), dict(writer.state_dict())
    for name, value in state.items():
        if value.shape[:1] != (size,):
            continue
        rows = value.new_full((len(vocabulary) - size,), float(value.min()) - 1)
        if value.dim() == 2:
            weights, bias = solve_ridge(alone[len(SPECIALS) : size], value[len(SPECIALS) :], EMBEDDING_RIDGE)
            rows = alone[size:] @ weights + bias
        state[name] = torch.cat([value, rows])
    return state


def describe_classes(lines: Sequence[WrittenLine], vectors: SentenceVectors) -> Tensor:
    """Computes vectors (C, D) of classes: the mean of what was written of each, or else its name's."""
    described, parts = vectors.find(CLASS_NAMES), dict[int, list[Tensor]]()
    for line in lines:
        mean = vectors.average(line.patterns).mean(0)
        for row in line.rows:
            parts.setdefault(row, []).append(mean)
    for row, means in parts.items():
        described[row] = torch.stack(means).mean(0)
    return described


@dataclass(frozen=True, eq=False)
class CaptionedFrames:
    """Frames of training pictures. seen: (n, C) mean grids. captions: of each. typical: (N, C), mean grid."""

    seen: Tensor
    captions: list[tuple[str, ...]]
    typical: Tensor


def load_frames(data: Path, cache: Path) -> CaptionedFrames:
    """Loads what the image network sees of every training frame below a folder; features are cached."""
    network = CachedNetwork(PICTURE_NETWORKS[TUNED](CPU).network, views=1)
    sets = [(data / a, data / c) for a, c in SETS if (data / a).exists() and (data / c).exists()]
    items = [item for a, c in sets for item in load_set([network], a, read_items(c, "train"), cache)]
    seen, captions, total = list[Tensor](), list[tuple[str, ...]](), torch.zeros(())
    for item in items:
        grids = torch.from_numpy(sample_whole(item.pictures).values[PICTURE]).float()
        seen += grids.mean(1)
        total = total + grids.sum(0)
        texts = [" ".join(words) for words in item.captions]
        captions += [tuple(texts[:: max(1, len(texts) // PER_PICTURE)][:PER_PICTURE])] * len(grids)
    return CaptionedFrames(torch.stack(seen), captions, total / len(seen))


def find_directions(vectors: Tensor, width: int) -> Tensor:
    """Finds the first principal directions (D, width) of sentence vectors (n, D)."""
    directions: Tensor = torch.linalg.eigh(vectors.T @ vectors).eigenvectors.flip(1)[:, :width]
    return directions


def pair_classes(sentences: Sequence[str], lines: Sequence[WrittenLine]) -> Tensor:
    """Pairs the place of each sentence with those of classes that it was written of: int16 (pairs, 2)."""
    places = {text: place for place, text in enumerate(sentences)}
    pairs = {
        (places[text], row)
        for line in lines
        for text in itertools.chain(*line.patterns)
        if text in places
        for row in line.rows
    }
    return torch.tensor(sorted(pairs), dtype=torch.int16).reshape(-1, 2)


def build_captioner(
    writer: Captioner, vocabulary: Vocabulary, vectors: SentenceVectors, sentences: Sequence[str]
) -> LabelledCaptioner:
    """Builds a labelled captioner that writes as the other does and has not yet anything to expect.

    Args:
        writer: The captioner inside.
        vocabulary: Its words and further ones.
        vectors: Of single words.
        sentences: That it recalls.
    """
    kind = captioner_class(NAME)
    assert issubclass(kind, LabelledCaptioner)
    pairs = pair_classes(sentences, read_lines())
    remembered = RememberedConfig(sentences=len(sentences), words=LONGEST + 1, classes=len(pairs))
    meaning = MeaningConfig(texts=WIDTH)
    config = LabelledConfig[Any](writer=writer.config, meaning=meaning, remembered=remembered)
    captioner = kind(config, vocabulary)
    captioner.written_of.copy_(pairs)
    captioner.writer.load_state_dict(extend_writer(writer, vocabulary, vectors.find(vocabulary.words)))
    for row, text in zip(captioner.remembered, sentences, strict=True):
        ids = vocabulary.encode(split_words(text))
        row[: len(ids)] = torch.tensor(ids, dtype=torch.int16)
    return captioner


def fit_captioner(
    writer: Captioner,
    frames: CaptionedFrames,
    captions: Sequence[str],
    sentences: Sequence[str],
    vectors: SentenceVectors,
) -> LabelledCaptioner:
    """Fits all that a labelled captioner expects.

    Args:
        writer: The captioner inside.
        frames: Of training pictures.
        captions: All that words' vectors are fitted to.
        sentences: That it recalls.
        vectors: Of sentences.
    """
    lines = read_lines()
    vocabulary = choose_words(writer.vocabulary, captions, lines)
    vectors.find([*captions, *vocabulary.words, *CLASS_NAMES, *list_sentences(lines)])
    captioner = build_captioner(writer, vocabulary, vectors, sentences)
    directions = find_directions(vectors.find(captions), WIDTH)
    targets = vectors.average(frames.captions)
    weights, bias = solve_ridge(frames.seen, targets, PICTURE_RIDGE)
    words = fit_words(vocabulary, captions, vectors)
    classes = describe_classes(lines, vectors)
    meaning = captioner.meaning
    with torch.no_grad():
        meaning.picture.weight.copy_((weights @ directions).T)
        meaning.picture.bias.copy_(bias @ directions)
        meaning.kinds.copy_(torch.tensor(KIND_WEIGHTS))
        meaning.words.weight.copy_(words @ directions)
        meaning.texts.copy_(classes @ directions)
        meaning.common.copy_(targets.mean(0) @ directions)
        captioner.typical.copy_(frames.typical)
        captioner.lengths.copy_(meaning.measure_lengths(captioner.remembered.long()))
        captioner.priors.copy_(captioner.eval().measure_remembered())
    return captioner


def drop_quotations(written: Iterable[str], captions: Iterable[str]) -> list[str]:
    """Drops sentences that stand among captions, letters and digits compared."""
    taken = {"".join(split_words(caption)) for caption in captions}
    return [text for text in written if "".join(split_words(text)) not in taken]


def labelled(
    data: Annotated[Path, typer.Option(help="Archives of captioned pictures; docs/training.md names them.")],
    captions: Annotated[
        list[Path], typer.Option(help="Captions that words' vectors are learned from, a line each; or .gz.")
    ],
    out: Annotated[Path, typer.Option(help="Where the checkpoint is written.")],
    cache: Annotated[Path, typer.Option(help="Where features of pictures are kept.")] = Path("cache"),
    unquoted: Annotated[list[Path], typer.Option(help="Further captions that no sentence repeats.")] = [],  # noqa: B006  # typer copies it
    most: Annotated[int, typer.Option(min=1, help="Captions without pictures that are read.")] = 50_000,
) -> None:
    """Fit labelled_stats: words, picture, classes and the sentences that were written for it."""
    frames = load_frames(data, cache)
    lines = sorted({" ".join(split_words(line)) for line in read_captions(captions)})
    drawn = random.Random(SEED).sample(lines, min(most, len(lines)))
    texts = list(dict.fromkeys([text for row in frames.captions for text in row] + drawn))
    writer = load_captioner(WRITER)
    vectors = SentenceVectors(SentenceEncoder.load(), cache / "sentence_vectors.npz")
    sentences = drop_quotations(list_sentences(read_lines()), {*texts, *lines, *read_captions(unquoted)})
    captioner = fit_captioner(writer.captioner, frames, texts, sentences, vectors)
    save_checkpoint(out, captioner, make_card(writer.card, len(frames.captions), len(texts)))
    typer.echo(f"{len(captioner.remembered)} sentences: {out}")


def make_card(card: Card, frames: int, captions: int) -> Card:
    """Makes a card of that of the captioner inside.

    Args:
        card: Of the captioner inside.
        frames: How many pictures were read.
        captions: How many captions.
    """
    streams = {**card.streams, LABELS: find_label_spec()}
    training = {**card.training, "streams": DEMO_MOTION.name, "frames": frames, "captions": captions}
    return Card(NAME, streams, {}, training)


def find_label_spec() -> StreamSpec:
    """Finds the name tag of labels as the service makes them, by those of a grey second."""
    grey = Frames(np.full((25, 224, 224, 3), 128, np.uint8), np.arange(25) / 25, 1.0, 25.0)
    (streams,) = FeatureSource(DEMO_MOTION.select([LABELS])).extract([grey])
    return streams[LABELS].spec


def read_captions(paths: Iterable[Path]) -> Iterator[str]:
    """Reads captions of files, a line each."""
    for path in paths:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        yield from filter(None, map(str.strip, text.splitlines()))
