"""Scores of captions in files: each form is read alike, and CLIP's are those that transformers computes."""

from __future__ import annotations

import gzip
import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer
from typer.testing import CliRunner

from app.cli.main import cli as app
from extractors.features import Frames
from extractors.media.decode import decode_here
from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.pretrained.errors import PretrainedDamaged
from tests.media import write_video
from training.datasets.errors import AnnotationsDamaged, DataSetError
from training.evaluation.caption_files import read_references, read_results, write_results
from training.evaluation.score_files import ClipSource, score_files
from training.precision import CPU
from training.scores.clip_score import ClipEncoder, compute_clip_scores
from training.scores.diversity import measure_diversity

REFERENCES = {
    "1": ["a dog is running", "the dog runs in a park"],
    "2": ["someone plays the guitar"],
    "3": ["a cat sits on a table"],
}
CAPTIONS = {"1": "a dog runs in the park", "2": "a man plays a guitar", "3": "a man plays a guitar"}
WORSE = dict.fromkeys(CAPTIONS, "a man is talking")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    monkeypatch.setattr("training.scores.java._list_installed", list)


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    return write(tmp_path / "captions.json", CAPTIONS)


@pytest.fixture
def references(tmp_path: Path) -> Path:
    return write(tmp_path / "references.json", REFERENCES)


def test_results_in_each_form_are_read_alike(tmp_path: Path) -> None:
    rows = [{"image_id": int(name), "caption": text} for name, text in CAPTIONS.items()]
    lines = [{"file": name, "state": "succeeded", "caption": text} for name, text in CAPTIONS.items()]
    jsonl, packed = tmp_path / "lines.jsonl", tmp_path / "rows.json.gz"
    jsonl.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    packed.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert read_results(jsonl) == read_results(packed) == CAPTIONS
    paths = write(tmp_path / "paths.json", {f"films/{name}.mp4": text for name, text in CAPTIONS.items()})
    assert read_results(paths, REFERENCES) == CAPTIONS
    assert read_results(write(tmp_path / "plain.json", CAPTIONS)) == CAPTIONS


def test_references_in_each_form_are_read_alike(tmp_path: Path) -> None:
    pairs = [(int(name), text) for name, texts in REFERENCES.items() for text in texts]
    documents: list[Any] = [
        {"images": [{"id": 1}], "annotations": [{"image_id": n, "caption": text} for n, text in pairs]},
        {"videos": [], "sentences": [{"video_id": str(n), "caption": text} for n, text in pairs]},
        [{"file": name, "captions": texts, "split": "test"} for name, texts in REFERENCES.items()],
        [{"videoID": name, "enCap": texts, "chCap": ["狗"]} for name, texts in REFERENCES.items()],
        REFERENCES,
    ]
    for document in documents:
        assert read_references(write(tmp_path / "references.json", document)) == REFERENCES
    write_video(tmp_path / "1.mp4")
    write(tmp_path / "captions.json", {"1.mp4": REFERENCES["1"]})
    assert read_references(tmp_path) == {"1.mp4": REFERENCES["1"]}


def test_results_are_written_as_scorers_elsewhere_read_them(tmp_path: Path) -> None:
    file, named = tmp_path / "out.json", {"12": "a dog", "007": "café", "video3": "a cat"}
    write_results(file, named)
    assert [each["image_id"] for each in json.loads(file.read_text())] == [12, "007", "video3"]
    assert read_results(file) == named
    write_results(file, named, "vatex")
    assert json.loads(file.read_text()) == named


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"1": ["a dog", "a cat"]}, "has 2 captions of 1, and one is scored"),
        ({"a/1.mp4": "a dog", "b/1.mp4": "a dog"}, "has 2 captions of 1, and one is scored"),
        ([{"image_id": 1}], "another form than expected at 0.caption"),
        ({"9": "a dog"}, "9 has a caption and no reference; references are of 1, 2, 3"),
        ({}, "There is no caption to score"),
    ],
)
def test_what_cannot_be_scored_is_told(
    tmp_path: Path, references: Path, document: Any, sentence: str
) -> None:
    with pytest.raises(DataSetError, match=sentence):
        score_files(write(tmp_path / "odd.json", document), references)


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"id": "a", "caption": "a dog"}\n{"id": "b"}\n')
    with pytest.raises(AnnotationsDamaged, match=r"lines.jsonl, line 2 has another form"):
        read_results(file)


def test_two_files_are_compared_item_by_item(tmp_path: Path, captions: Path) -> None:
    references = write(tmp_path / "references.json", {**REFERENCES, "4": ["left out"]})
    result = score_files(captions, references, write(tmp_path / "worse.json", WORSE))
    document = result.to_json()
    assert document["left_out"] == 1
    assert document["metrics"]["plain_cider"] > 0
    for name, compared in document["against"].items():
        worse = score_files(tmp_path / "worse.json", references).report.metrics[name].corpus
        assert compared["difference"] == pytest.approx(document["metrics"][name] - worse)
    same = {each.name: each for each in score_files(captions, references, captions).against}["bleu1"]
    assert (same.difference, same.p) == (0, 1)
    with pytest.raises(DataSetError, match="2 items have a caption in one file alone, such as '2'"):
        score_files(captions, references, write(tmp_path / "less.json", {"1": "a dog"}))


def test_diversity_counts_words_pairs_and_what_is_new() -> None:
    found = measure_diversity(["a dog runs", "a dog", "a dog"], ["a dog"])
    assert found.distinct_1 == pytest.approx(300 / 7)
    assert found.distinct_2 == pytest.approx(200 / 4)
    assert (found.words, found.different) == (3, 2)
    assert found.novel == pytest.approx(100 / 3)
    assert measure_diversity([""]).novel is None


def test_training_captions_are_tokenised_as_the_others(
    tmp_path: Path, captions: Path, references: Path
) -> None:
    training = write(tmp_path / "training.json", {"x": ["A man plays a guitar!"]})
    assert score_files(captions, references, training=training).diversity.novel == pytest.approx(100 / 3)


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP of one layer on each side, with random weights; it spells letter by letter."""
    folder = tmp_path_factory.mktemp("clip")
    letters = [*string.ascii_lowercase, *(f"{letter}</w>" for letter in string.ascii_lowercase)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters]
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(3)
    side = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {
        **side,
        "vocab_size": len(words),
        "max_position_embeddings": 48,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    vision = {**side, "image_size": 32, "patch_size": 16}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(std=0.4)
    model.save_pretrained(folder)
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    pictures = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    CLIPProcessor(pictures, tokenizer).save_pretrained(folder)
    return folder


def cosine(folder: Path, texts: list[str], pixels: np.ndarray[Any, Any]) -> torch.Tensor:
    """Transformers' own cosines (frames, texts)."""
    model, processor = CLIPModel.from_pretrained(folder).eval(), CLIPProcessor.from_pretrained(folder)
    pictures = [Image.fromarray(each) for each in pixels]
    prefixed = [f"A photo depicts {text}" for text in texts]
    inputs = processor(
        text=prefixed, images=pictures, return_tensors="pt", padding=True, truncation=True, max_length=48
    )
    with torch.no_grad():
        output = model(**inputs)
    texts_to_texts = output.text_embeds @ output.text_embeds.T
    return torch.cat([output.logits_per_image / model.logit_scale.exp(), texts_to_texts])


def test_clip_scores_are_those_of_transformers(clip_folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (3, 40, 60, 3), np.uint8)
    texts = ["a dog", "a dog runs", "nothing at all"]
    golden = cosine(clip_folder, texts, pixels)
    encoder = ClipEncoder.load(clip_folder, CPU)
    video = encoder.encode_frames(Frames(pixels, np.arange(3.0), 3.0))
    clip, with_references = compute_clip_scores(encoder, [video, video], texts[:2], [texts[1:], texts[2:]])
    for place, others in ((0, golden[3][1:]), (1, golden[4][2:])):
        looks = 2.5 * max(0.0, float(golden[:3, place].detach().mean()))
        nearest = max(0.0, float(others.detach().max()))
        assert clip[place] == pytest.approx(looks, abs=1e-5)
        mean = 2 * looks * nearest / (looks + nearest) if looks + nearest else 0
        assert with_references[place] == pytest.approx(mean, abs=1e-5)
    assert clip.max() > 0


def test_videos_are_looked_at_by_their_names(
    tmp_path: Path, clip_folder: Path, captions: Path, references: Path
) -> None:
    (tmp_path / "films").mkdir()
    for number in CAPTIONS:
        write_video(tmp_path / "films" / f"{number}.mp4", frames=10)
    scores = score_files(captions, references, clip=ClipSource(clip_folder, tmp_path / "films", frames=2))
    pixels = decode_here(tmp_path / "films/1.mp4", DecodeRequest(Sampling(count=2))).footage.pixels
    want = 250 * max(0.0, float(cosine(clip_folder, [CAPTIONS["1"]], pixels)[:2].detach().mean()))
    assert scores.report.metrics["clip_score"].items[0] == pytest.approx(want, abs=1e-3)
    (tmp_path / "films/3.mp4").unlink()
    with pytest.raises(DataSetError, match="--videos has no file called 3"):
        score_files(captions, references, clip=ClipSource(clip_folder, tmp_path / "films"))
    with pytest.raises(PretrainedDamaged, match="cannot be loaded as a CLIP"):
        ClipEncoder.load(tmp_path, CPU)


def test_the_command_prints_tables_or_json(captions: Path, references: Path) -> None:
    words = ["score", str(captions), "--references", str(references), "--against", str(captions)]
    printed = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert printed.exit_code == 0, printed.output
    assert all(title in printed.output for title in ("CIDEr-D", "distinct-2", "paired", "+0.0 to +0.0"))
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).output.splitlines()[-1])
    assert document["against"]["rouge_l"]["p"] == 1
    refused = CliRunner().invoke(app, [*words, "--clip", str(captions.parent)], env={"COLUMNS": "200"})
    assert refused.exit_code == 2
    assert "--clip and --videos belong together" in refused.output
