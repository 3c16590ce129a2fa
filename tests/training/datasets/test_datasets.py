"""Sets in their authors' layouts give their videos, splits and captions; what is wrong in them is told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from models.vocabulary import split_words
from tests.media import write_still, write_video
from tests.training.laid_out import LAYOUTS, Captioned, flickr8k, msrvtt, mvad, vatex, write_json
from training.datasets.check import check_data_set, probe_header
from training.datasets.data_set import VocabularyRule
from training.datasets.errors import (
    AnnotationsDamaged,
    AnnotationsMissing,
    FolderMissing,
    IdsCollide,
    NothingToUse,
    UnknownDataSet,
    UnknownProtocol,
    UnknownSplit,
)
from training.datasets.published.msrvtt import _choose_splits, _MsrvttVideo
from training.datasets.registry import DATA_SETS, SetFolder, find_data_set, recognise_data_set

PICTURES = {"flickr8k", "coco", "coco by Karpathy"}
CAPTIONS = (("a red square", "The Square, red."), ("a square",), ("two squares", "four"), ("a green one",))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Captioned]]:
    """Four small videos and four stills."""
    place = tmp_path_factory.mktemp("samples")
    clip, still = write_video(place / "clip.avi", codec="mpeg4", frames=6), write_still(place / "still.jpg")
    return {
        "videos": [Captioned(clip, captions) for captions in CAPTIONS],
        "pictures": [Captioned(still, captions) for captions in CAPTIONS],
    }


@pytest.fixture(scope="module")
def real(shared: Path) -> list[Captioned]:
    """Clips of the shared folder, of every container that it has, with what people say of them."""
    place = shared / "data/clips"
    entries = json.loads((place / "captions.json").read_text())
    clips = [Captioned(place / each["file"], tuple(each["captions"])) for each in entries]
    return [
        next(c for c in clips if c.file.suffix == suffix)
        for suffix in (".avi", ".mp4", ".webm", ".mkv", ".gif")
    ]


def lay(layout: str, root: Path, clips: Sequence[Captioned]) -> None:
    """Lays the clips out, reads them, and finds all that was put down."""
    name, write = LAYOUTS[layout]
    named = write(root, clips)
    found = SetFolder(root, name).load()
    assert {video.id for video in found.videos} == set(named)
    for video in found.usable:
        assert video.path is not None
        assert video.path.resolve() == named[video.id].file.resolve()
        assert video.captions == tuple(" ".join(caption.split()) for caption in named[video.id].captions)
        assert (video.start, video.end) == (None, None)
    assert len(found.usable) == len(clips)
    assert recognise_data_set(root).name == name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_set_is_read_in_its_own_layout(
    layout: str, tmp_path: Path, samples: dict[str, list[Captioned]]
) -> None:
    clips = samples["pictures" if layout in PICTURES else "videos"]
    lay(layout, tmp_path, clips)
    name, _ = LAYOUTS[layout]
    report = check_data_set(find_data_set(name), tmp_path, probe=probe_header)
    assert sum(split.found for split in report.splits) == len(clips)
    assert not report.unreadable
    assert sum(split.captions for split in report.splits) >= sum(len(clip.captions) for clip in clips)
    assert report.complete == (name == "folder")  # a paper's set has more than four


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in PICTURES])
def test_real_clips_are_read_in_every_layout(layout: str, tmp_path: Path, real: list[Captioned]) -> None:
    lay(layout, tmp_path, real)
    report = check_data_set(find_data_set(LAYOUTS[layout][0]), tmp_path, probe=probe_header)
    assert sum(split.found for split in report.splits) == len(real)
    assert not report.unreadable


@pytest.mark.parametrize("layout", ["msrvtt", "vatex", "mvad", "flickr8k", "folder", "coco by Karpathy"])
def test_splits_are_as_the_annotations_say(
    layout: str, tmp_path: Path, samples: dict[str, list[Captioned]]
) -> None:
    name, write = LAYOUTS[layout]
    write(tmp_path, samples["pictures" if layout in PICTURES else "videos"])
    found = SetFolder(tmp_path, name).load()
    assert Counter(video.split for video in found.videos) == {"train": 2, "val": 1, "test": 1}


def test_msvd_is_split_by_the_order_of_its_names(tmp_path: Path) -> None:
    names = [f"{chr(45 + i % 70)}id{i:08d}_{i}_{i + 9}" for i in range(1970)]
    text = "".join(f"{name} a caption\n" for name in names)
    (tmp_path / "AllVideoDescriptions.txt").write_text(text)
    found = SetFolder(tmp_path, "msvd").load()
    assert Counter(video.split for video in found.videos) == {"train": 1200, "val": 100, "test": 670}
    assert [video.id for video in found.in_split("train")] == sorted(names, key=str.encode)[:1200]
    assert "other_index" not in {notice.code for notice in found.notices}


def test_a_part_of_msvd_is_split_by_the_numbers_of_its_mapping(tmp_path: Path) -> None:
    """Numbers may leave gaps: a clip's split is that of its number, not of its place among those there."""
    numbers = {"a_0_5": 1200, "b_0_5": 1, "c_0_5": 1201, "d_0_5": 1300, "e_0_5": 1301}
    (tmp_path / "AllVideoDescriptions.txt").write_text("".join(f"{name} a caption\n" for name in numbers))
    lines = [f"{name} vid{number}" for name, number in numbers.items()]
    (tmp_path / "youtube_mapping.txt").write_text("\n".join(lines))
    found = SetFolder(tmp_path, "msvd").load()
    split = {name: [video.id for video in found.in_split(name)] for name in ("train", "val", "test")}
    assert split == {"train": ["b_0_5", "a_0_5"], "val": ["c_0_5", "d_0_5"], "test": ["e_0_5"]}


def test_activitynet_is_read_segment_by_segment(tmp_path: Path, samples: dict[str, list[Captioned]]) -> None:
    """Both annotators' segments are items of the validation split; those without length are none."""
    clip = samples["videos"][0].file
    (tmp_path / "v_a.avi").symlink_to(clip)
    first = {
        "duration": 9.5,
        "timestamps": [[0, 2.25], [9, 4], [3, 3]],
        "sentences": ["a man", " a dog ", "no"],
    }
    write_json(tmp_path / "captions/val_1.json", {"v_a": first})
    second = {"duration": 9.5, "timestamps": [[0, 2.25]], "sentences": ["somebody runs"]}
    write_json(tmp_path / "captions/val_2.json", {"v_a": second, "v_gone": second})
    found = SetFolder(tmp_path).load()
    assert found.name == "activitynet"
    items = {video.id: (video.split, video.captions, video.start, video.end) for video in found.usable}
    assert items == {
        "v_a@0-2.25": ("val", ("a man", "somebody runs"), 0, 2.25),
        "v_a@4-9": ("val", ("a dog",), 4, 9),
    }
    assert {notice.code for notice in found.notices} == {"no_split", "repeated_video", "missing_video"}
    write_json(tmp_path / "captions/train.json", {"v_b": second})
    assert [video.id for video in SetFolder(tmp_path).load().in_split("train")] == ["v_b@0-2.25"]


def test_youcook2_is_read_step_by_step(tmp_path: Path, samples: dict[str, list[Captioned]]) -> None:
    (tmp_path / "raw_videos").mkdir()
    (tmp_path / "raw_videos/GLd3aX16zBg.avi").symlink_to(samples["videos"][0].file)
    steps = [{"segment": [90, 102], "id": 0, "sentence": "spread butter"}]
    database = {
        "GLd3aX16zBg": {"subset": "training", "annotations": steps, "duration": 241.6},
        "xHr8X2Wpmno": {"subset": "validation", "annotations": steps},
    }
    write_json(tmp_path / "youcookii_annotations_trainval.json", {"database": database})
    found = SetFolder(tmp_path).load()
    assert found.name == "youcook2"
    assert [(video.id, video.split, video.start, video.end, video.usable) for video in found.videos] == [
        ("GLd3aX16zBg@90-102", "train", 90, 102, True),
        ("xHr8X2Wpmno@90-102", "val", 90, 102, False),
    ]


def test_each_paper_splits_msrvtt_its_own_way() -> None:
    official = {"train": 6513, "validate": 497, "test": 2990}
    videos = [
        _MsrvttVideo(video_id=f"video{i}", split=split)
        for i, split in enumerate(split for split, count in official.items() for _ in range(count))
    ]
    for protocol in DATA_SETS["msrvtt"].protocols:
        chosen = _choose_splits(videos[::-1], protocol.paper)
        assert Counter(chosen.values()) == Counter(protocol.splits), protocol.paper
    assert _choose_splits(videos, "refocus")["video6512"] == "val"
    assert _choose_splits(videos, "g2l")["video6512"] == "train"
    assert _choose_splits(videos, "dual_afr")["video6512"] == "test"
    assert "video9999" not in _choose_splits(videos, "dual_afr")


def test_msrvtt_is_read_by_the_names_of_2017(tmp_path: Path, samples: dict[str, list[Captioned]]) -> None:
    """The challenge's own clips to be captioned come without a sentence; categories are kept."""
    msrvtt(tmp_path, samples["videos"])
    (tmp_path / "train_val_videodatainfo.json").rename(tmp_path / "videodatainfo_2017.json")
    test = tmp_path / "test_videodatainfo.json"
    document = json.loads(test.read_text())
    del document["sentences"]
    write_json(tmp_path / "test_videodatainfo_2017.json", document)
    test.unlink()
    assert recognise_data_set(tmp_path).name == "msrvtt"
    found = SetFolder(tmp_path, "msrvtt").load()
    assert [video.category for video in found.videos] == [0, 1, 2, 3]
    assert [path.name for path in found.annotations] == [
        "videodatainfo_2017.json",
        "test_videodatainfo_2017.json",
    ]
    assert "uncaptioned_video" in {notice.code for notice in found.notices}
    assert Counter(video.split for video in found.usable) == {"train": 2, "val": 1}


def test_a_part_of_a_whole_video_keeps_its_times(tmp_path: Path, samples: dict[str, list[Captioned]]) -> None:
    clip = samples["videos"][0]
    whole = tmp_path / "vatex" / "abcdefghijk.avi"
    whole.parent.mkdir()
    whole.symlink_to(clip.file)
    entries = [{"videoID": "abcdefghijk_000057_000067", "enCap": ["a square"]}]
    write_json(tmp_path / "vatex/vatex_training_v1.0.json", entries)
    [video] = SetFolder(tmp_path / "vatex", "vatex").load().videos
    assert (video.path, video.start, video.end) == (whole, 57.0, 67.0)


def test_subtitles_of_films_are_read(tmp_path: Path, samples: dict[str, list[Captioned]]) -> None:
    film, clip = tmp_path / "A FILM.avi", tmp_path / "A FILM_DVS2.avi"
    for path in (film, clip):
        path.symlink_to(samples["videos"][0].file)
    subtitles = (
        "1\r\n00:00:01,500 --> 00:00:03,000\r\nSOMEONE walks\r\nin.\r\n\r\n"
        "2\r\n01:00:00,0 --> 01:00:02,0\r\nRain.\r\n"
    )
    (tmp_path / "val").mkdir()
    (tmp_path / "val/A FILM.srt").write_text(subtitles, encoding="utf-8-sig", newline="")
    first, second = SetFolder(tmp_path, "mvad").load().in_split("val")
    assert (first.id, first.path, first.start, first.end) == ("A FILM_DVS1", film, 1.5, 3.0)
    assert first.captions == ("SOMEONE walks in.",)
    assert (second.path, second.start, second.end) == (clip, None, None)


def own(root: Path, text: str, name: str = "captions.csv", encoding: str = "utf-8") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding=encoding, newline="")
    return root


def notices(root: Path) -> dict[str, str]:
    return {notice.code: notice.message for notice in SetFolder(root, "folder").load().notices}


@pytest.fixture
def films(tmp_path: Path, samples: dict[str, list[Captioned]]) -> Path:
    """Two videos whose names have a space, a comma and letters of other languages."""
    for name in ("a, b.avi", "Ünïcode 影片.avi"):
        (tmp_path / name).symlink_to(samples["videos"][0].file)
    return tmp_path


def test_a_table_may_come_from_any_spreadsheet(films: Path) -> None:
    text = (
        'Split;Caption;FILE\r\nval;"one; with ""quotes""\nand a second line";a, b.avi\r\n'
        ";schön;Ünïcode 影片.avi\r\n;zwei;Ünïcode 影片.avi\r\n"
    )
    found = SetFolder(own(films, text, encoding="utf-8-sig")).load()
    assert [(video.id, video.split, video.captions) for video in found.videos] == [
        ("a, b.avi", "val", ('one; with "quotes" and a second line',)),
        ("Ünïcode 影片.avi", "train", ("schön", "zwei")),
    ]
    assert all(video.path is not None for video in found.videos)
    assert [notice.code for notice in found.notices] == ["caption_lines"]


def test_what_is_left_out_is_told(films: Path) -> None:
    entries = [
        {"file": "a, b.avi", "captions": ["a square", "  ", "…", "影片"]},
        {"file": "a, b.avi", "caption": "again"},
        {"file": "gone.avi", "captions": ["a square"]},
        {"file": "Ünïcode 影片.avi", "golden_caption": "a square"},
    ]
    found = notices(own(films, json.dumps(entries), "captions.json"))
    assert found.pop("other_members") == (
        "1 entries have neither captions nor caption, and their other members are not read, "
        "e.g. golden_caption of Ünïcode 影片.avi."
    )
    assert found.keys() == {"empty_caption", "repeated_video", "missing_video", "uncaptioned_video"}
    assert "3 captions" in found["empty_caption"]
    assert "gone.avi" in found["missing_video"]
    usable = SetFolder(films).load().usable
    assert [(video.id, video.captions) for video in usable] == [("a, b.avi", ("a square", "again"))]


def test_short_rows_are_told(films: Path) -> None:
    found = notices(own(films, 'file,caption\n"a, b.avi",a square\nlost\n'))
    assert found == {"short_row": "1 rows of captions.csv lack fields and were left out."}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "captions.csv",
            "video_name,caption\na.avi,x\n",
            "no column called 'file'; it has: video_name, caption",
        ),
        ("captions.csv", 'file,caption\na.avi,"never closed\n', "is broken in line"),
        ("captions.csv", "file,caption,split\na.avi,x,dev2\n", "row 2: split"),
        ("captions.csv", "file,caption,start,end\na.avi,x,5,2\n", "start must come before end"),
        ("captions.csv", "file,caption,start\na.avi,x,5\n", "belong together"),
        ("captions.csv", "", "no column called 'file'; it has: nothing"),
        ("captions.json", "[{", "another form than expected"),
        ("captions.json", '[{"video": "a.avi"}]', "expected at 0.file: Field required"),
        ("captions.json", '{"a.avi": 3}', "another form than expected"),
    ],
)
def test_captions_of_another_form_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(AnnotationsDamaged, match=said) as raised:
        SetFolder(own(tmp_path, text, name), "folder").load()
    assert "captions.csv with the columns file and caption" in raised.value.advice


def test_another_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnnotationsDamaged, match="not in UTF-8"):
        SetFolder(own(tmp_path, "file,caption\na.avi,schön\n", encoding="latin-1"), "folder").load()


def test_one_id_for_two_videos_is_refused(films: Path) -> None:
    entries = [{"file": name, "id": 7, "captions": ["x"]} for name in ("a, b.avi", "Ünïcode 影片.avi")]
    with pytest.raises(IdsCollide, match="'7'"):
        SetFolder(own(films, json.dumps(entries), "captions.json"), "folder").load()


def test_the_test_split_is_judged_and_what_comes_nearest_without_it(films: Path) -> None:
    def judged(*splits: str, asked: str | None = None) -> list[str]:
        named = zip(("a, b.avi", "Ünïcode 影片.avi"), splits, strict=True)
        entries = [{"file": name, "caption": "a square", "split": split} for name, split in named]
        own(films, json.dumps(entries), "captions.json")
        folder = SetFolder(films, split=asked)
        return [video.split for video in folder.choose_evaluated(folder.load())]

    assert judged("val", "test") == ["test"]
    assert judged("val", "train") == ["val"]
    assert judged("train", "train") == ["train", "train"]
    assert judged("train", "test", asked="train") == ["train"]
    with pytest.raises(NothingToUse, match="of the split val"):
        judged("train", "test", asked="val")
    with pytest.raises(UnknownSplit, match="no split 'dev'"):
        judged("train", "test", asked="dev")


def test_nothing_usable_says_why(tmp_path: Path) -> None:
    found = SetFolder(own(tmp_path, '{"gone.avi": "a square"}', "captions.json")).load()
    with pytest.raises(NothingToUse, match=r"1 captioned video is not there, e.g. gone.avi"):
        found.require()


def test_a_missing_set_says_how_to_get_it(tmp_path: Path) -> None:
    for each in DATA_SETS.values():
        with pytest.raises(AnnotationsMissing) as raised:
            each.load(tmp_path)
        assert each.annotations[0].names[0] in str(raised.value)
        assert raised.value.hint == each.obtain
        with pytest.raises(FolderMissing):
            each.load(tmp_path / "nowhere")
        report = check_data_set(each, tmp_path)
        assert report.missing
        assert not report.complete


def test_unknown_names_are_told() -> None:
    with pytest.raises(UnknownDataSet, match="no set called 'imagenet'"):
        find_data_set("imagenet")
    with pytest.raises(UnknownProtocol, match="'fusion' did not use MSVD"):
        find_data_set("MSVD").find_protocol("fusion")
    assert find_data_set("MSR-VTT") is DATA_SETS["msrvtt"]
    assert find_data_set("m-vad") is DATA_SETS["mvad"]


@pytest.mark.parametrize(
    ("write", "file", "text", "said"),
    [
        (mvad, "corpus_M-VAD_val.txt", "A_FILM_DVS1 no tab", "no tab in line 1"),
        (msrvtt, "test_videodatainfo.json", '{"sentences": []}', "videos: Field required"),
        (vatex, "vatex_training_v1.0.json", '[{"videoID": "a"}]', "0.enCap: Field required"),
        (flickr8k, "Flickr8k_text/Flickr8k.token.txt", "a caption", "in line 1"),
    ],
)
def test_damaged_annotations_say_where(
    tmp_path: Path,
    samples: dict[str, list[Captioned]],
    write: object,
    file: str,
    text: str,
    said: str,
) -> None:
    name = next(name for name, lay in LAYOUTS.values() if lay is write)
    dict(LAYOUTS.values())[name](tmp_path, samples["videos"])
    (tmp_path / file).write_text(text)
    with pytest.raises(AnnotationsDamaged, match=said):
        SetFolder(tmp_path, name).load()


def test_rules_of_words(films: Path) -> None:
    entries = [
        {"file": "a, b.avi", "captions": ["A café, a cafe!", "a man's dog runs"]},
        {"file": "Ünïcode 影片.avi", "captions": ["a dog sits"], "split": "test"},
    ]
    found = SetFolder(own(films, json.dumps(entries), "captions.json"), "folder").load()
    assert split_words("A café, a CAFÉ!", fold_accents=True) == ["a", "cafe", "a", "cafe"]

    def known(rule: VocabularyRule) -> set[str]:
        return set(rule.build_vocabulary(found).words[3:])

    assert known(VocabularyRule()) == {"a", "cafe", "man", "'s", "dog", "runs"}
    assert known(VocabularyRule(min_count=2)) == {"a", "cafe"}
    assert known(VocabularyRule(min_count=2, whole_set=True)) == {"a", "cafe", "dog"}
    assert known(VocabularyRule(max_words=2)) == {"a", "cafe", "man"}
