"""The attention picture: right frame, right place, for any shape of video and length of caption."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFont, ImageStat

from app.attention_picture import drawing, heatmap, render
from app.attention_picture.explanation_panels import keep_heaviest, write_moment
from app.attention_picture.render import draw_attention_picture
from app.attention_picture.word_tiles import SPREAD, find_frame, list_tile_moments, write_below
from models.caption import (
    AttentionDocument,
    ChosenMoment,
    Evidence,
    ExplanationPart,
    GridAttention,
    MomentsExplanation,
    NamedChoice,
    TableExplanation,
    TableRow,
    TextExplanation,
    WeightsExplanation,
)
from models.combining.caption_writers import CANDIDATE_COLUMNS

GRID = 7


def peak(length: int, place: int) -> list[float]:
    rest = 0.05 / max(1, length - 1)
    return [0.95 if k == place else rest for k in range(length)]


def document(words: list[str], moments: int, *, cell: int = 24, kind: str = "grid") -> AttentionDocument:
    """Word w looks at moment w mod ``moments`` of one second each, and there at ``cell``."""
    spatial: object
    if kind == "grid":
        weights = [[peak(GRID * GRID, cell)] * moments for _ in words]
        spatial = {"kind": "grid", "rows": GRID, "columns": GRID, "weights": weights}
    elif kind == "boxes":
        boxes = [[[0.0, 0.0, 0.4, 0.4], [0.6, 0.6, 1.0, 1.0]]] * moments
        spatial = {"kind": "boxes", "weights": [[[0.9, 0.1]] * moments for _ in words], "boxes": boxes}
    else:
        spatial = None
    return AttentionDocument.model_validate(
        {
            "words": words,
            "times": [[k, k + 1.0] for k in range(moments)],
            "temporal": [peak(moments, word % moments) for word in range(len(words))],
            "spatial": spatial,
        }
    )


def frames(count: int, size: tuple[int, int]) -> list[Image.Image]:
    """Frame k is a flat colour of its own, (40 k, 90, 200 - 40 k)."""
    return [Image.new("RGB", size, (40 * k % 256, 90, (200 - 40 * k) % 256)) for k in range(count)]


def middles(count: int) -> list[float]:
    return [k + 0.5 for k in range(count)]


def find_most_attended(
    attention: AttentionDocument, word: int, times: Sequence[float]
) -> tuple[int, int] | None:
    """A word's heaviest moment, and the frame that shows it."""
    moment = attention.find_drawn_moment(word)
    return None if moment is None else (moment, find_frame(attention, moment, times))


@pytest.mark.parametrize("size", [(320, 180), (180, 320), (640, 80), (60, 480), (2, 2), (101, 57)])
@pytest.mark.parametrize("words", [1, 9, 30])
def test_any_shape_and_length_fit_the_page(size: tuple[int, int], words: int) -> None:
    picture = draw_attention_picture(document(["word"] * words, 8), frames(8, size), middles(8))
    assert picture.mode == "RGB"
    assert 900 <= picture.width <= render.CONTENT + 2 * drawing.MARGIN
    assert picture.height < 4000
    assert_margins_are_empty(picture)


@pytest.mark.parametrize("count", [1, 2, 17, 64])
def test_any_number_of_frames_fits(count: int) -> None:
    picture = draw_attention_picture(document(["a", "dog"], count), frames(count, (320, 180)), middles(count))
    assert_margins_are_empty(picture)


def assert_margins_are_empty(picture: Image.Image) -> None:
    edge = drawing.MARGIN // 2
    for box in (
        (0, 0, picture.width, edge),
        (0, 0, edge, picture.height),
        (picture.width - edge, 0, picture.width, picture.height),
        (0, picture.height - edge, picture.width, picture.height),
    ):
        assert picture.crop(box).getextrema() == ((255, 255),) * 3


def test_a_word_gets_the_frame_of_its_heaviest_moment() -> None:
    attention = document(["a", "dog", "runs"], 4)
    assert [find_most_attended(attention, word, middles(4)) for word in range(3)] == [(0, 0), (1, 1), (2, 2)]


def test_moments_that_are_windows_get_the_frame_nearest_their_middle() -> None:
    attention = AttentionDocument.model_validate(
        {"words": ["a"], "times": [[0, 4], [4, 8]], "temporal": [[0.2, 0.8]]}
    )
    assert find_most_attended(attention, 0, [0.5, 2.5, 4.5, 5.9, 7.5]) == (1, 3)
    assert find_most_attended(attention, 0, [0.5, 2.5]) == (1, 1)  # none inside: the nearest there is


def test_a_moment_ends_before_the_next_frame() -> None:
    """A sampled frame lasts until the next: [0.5, 1.5) is the frame at 0.5 s, not that at 1.5 s."""
    attention = AttentionDocument.model_validate(
        {"words": ["a", "dog"], "times": [[0.5, 1.5], [1.5, 1.5]], "temporal": [[0.8, 0.2], [0.2, 0.8]]}
    )
    assert find_most_attended(attention, 0, [0.5, 1.5]) == (0, 0)
    assert find_most_attended(attention, 1, [0.5, 1.5]) == (1, 1)


def test_of_equal_moments_the_first_counts() -> None:
    attention = AttentionDocument.model_validate(
        {"words": ["a"], "times": [[0, 1], [1, 2]], "temporal": [[0.5, 0.5]]}
    )
    assert find_most_attended(attention, 0, [0.5, 1.5]) == (0, 0)


def test_the_tile_shows_the_frame_lit_at_the_weighed_cell() -> None:
    """Frame 1 is grey; the word looks at its bottom right corner, which alone turns bright."""
    grey = [Image.new("RGB", (210, 210), (90, 90, 90)) for _ in range(2)]
    dark = draw_attention_picture(document(["a", "dog"], 2, kind="none"), grey, middles(2))
    lit = draw_attention_picture(document(["a", "dog"], 2, cell=GRID * GRID - 1), grey, middles(2))
    tile = _second_tile(dark)
    plain, heated = dark.crop(tile), lit.crop(tile)
    width, height = plain.size
    corner = (width * 6 // 7, height * 6 // 7, width, height)
    opposite = (0, 0, width // 2, height // 2)
    assert _brightness(heated.crop(corner)) > _brightness(plain.crop(corner)) + 30
    assert _brightness(heated.crop(opposite)) < _brightness(plain.crop(opposite))


def _second_tile(page: Image.Image) -> tuple[int, int, int, int]:
    """Where the second word's tile lies on a page whose frames are all one grey: the large grey squares."""
    grey = ImageChops.difference(page, Image.new("RGB", page.size, (90, 90, 90))).convert("L")
    mask = grey.point([255] + [0] * 255)
    column = mask.crop((page.width // 2 - 700, page.height // 3, page.width, page.height))
    side = round(render.TILE_AREA**0.5)
    left = drawing.MARGIN + side + drawing.GAP
    box = column.getbbox()
    assert box is not None
    top = page.height // 3 + box[1]
    return left, top, left + side, top + side


def _brightness(picture: Image.Image) -> float:
    return float(ImageStat.Stat(picture.convert("L")).mean[0])


def test_an_even_map_glows_nowhere_and_a_sharp_one_does() -> None:
    even = heatmap.scale_weights([1 / 49] * 49)
    assert max(even) == pytest.approx(0, abs=1e-9)
    sharp = heatmap.scale_weights(peak(49, 24))
    assert (sharp[24], sharp[0]) == (1, 0)
    noisy = heatmap.scale_weights([1.1 / 49, 0.9 / 49] + [1 / 49] * 47)
    assert max(noisy) == pytest.approx(0.1)


def test_one_cell_has_nothing_to_compare_with() -> None:
    assert heatmap.scale_weights([1.0]) == [0.0]


def test_the_scale_brightens_evenly() -> None:
    levels = [
        0.2126 * r + 0.7152 * g + 0.0722 * b
        for r, g, b in map(heatmap.pick_colour, [k / 20 for k in range(21)])
    ]
    steps = [b - a for a, b in pairwise(levels)]
    assert min(steps) > 0
    assert max(steps) < 4 * min(steps) + 12


def test_boxes_light_the_weighed_box_and_may_leave_the_picture() -> None:
    grey = Image.new("RGB", (100, 100), (90, 90, 90))
    lit = heatmap.overlay_boxes(grey, [0.9, 0.1], [[-0.2, -0.2, 0.4, 0.4], [1.4, 1.2, 0.7, 0.7]])
    assert lit.size == (100, 100)
    assert _brightness(lit.crop((5, 5, 35, 35))) > _brightness(lit.crop((75, 75, 95, 95))) + 50


@pytest.mark.parametrize("kind", ["boxes", "none"])
def test_captioners_without_a_grid_are_drawn_too(kind: str) -> None:
    picture = draw_attention_picture(document(["a", "dog"], 4, kind=kind), frames(4, (320, 180)), middles(4))
    assert_margins_are_empty(picture)


def test_a_word_without_attention_has_an_empty_tile() -> None:
    attention = document(["a", "dog"], 2).model_copy(update={"temporal": [None, [0.1, 0.9]]})
    assert find_most_attended(attention, 0, middles(2)) is None
    picture = draw_attention_picture(attention, frames(2, (320, 180)), middles(2))
    colours = {colour for _, colour in picture.getcolors(picture.width * picture.height) or []}
    assert drawing.FAINT in colours


def test_a_long_word_is_shrunk_and_then_cut() -> None:
    text, size = drawing.fit_text("dog", 25, 120)
    assert (text, size) == ("dog", 25)
    text, size = drawing.fit_text("incomprehensible", 25, 150)
    assert text == "incomprehensible"
    assert size < 25
    text, size = drawing.fit_text("antidisestablishmentarianism" * 3, 25, 150)
    assert text.endswith("…")
    assert ImageFont.load_default(size).getlength(text) <= 150


def test_no_words_still_make_a_picture() -> None:
    assert_margins_are_empty(draw_attention_picture(document([], 4), frames(4, (320, 180)), middles(4)))


def test_frames_and_times_must_belong_together() -> None:
    with pytest.raises(ValueError, match="2 frames cannot have 3 times"):
        draw_attention_picture(document(["a"], 3), frames(2, (320, 180)), middles(3))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (1.44, "1.4 s"), (59.96, "1:00.0"), (125, "2:05.0"), (7325.4, "2:02:05")],
)
def test_times_read_as_people_write_them(seconds: float, text: str) -> None:
    assert drawing.format_seconds(seconds) == text


# ---- what explains a caption, by its kind ----


def with_parts(*parts: ExplanationPart) -> AttentionDocument:
    return document(["a", "dog"], 4).model_copy(update={"extras": list(parts)})


def drawn(attention: AttentionDocument) -> Image.Image:
    picture = draw_attention_picture(attention, frames(4, (320, 180)), middles(4))
    assert_margins_are_empty(picture)
    return picture


def chosen(moment: int, text: str | None = None, box: list[float] | None = None) -> ChosenMoment:
    return ChosenMoment(moment=moment, time=float(moment), weight=0.5, text=text, box=box)


def moments(*words: list[ChosenMoment]) -> MomentsExplanation:
    return MomentsExplanation(name="selected", title="Frames read closely", words=list(words))


def weights(names: list[str], *words: list[float] | None) -> WeightsExplanation:
    choices = [NamedChoice(name=name, title=f"how {name} counts") for name in names]
    return WeightsExplanation(
        name="shares", title="Shares", note="What counts.", over="choices", choices=choices, words=list(words)
    )


def test_chosen_moments_lie_below_each_other() -> None:
    attention = with_parts(moments([chosen(0), chosen(3)], [chosen(2)]))
    assert list_tile_moments(attention, 0) == [0, 3]
    assert list_tile_moments(attention, 1) == [2]
    one, plain = with_parts(moments([chosen(0)], [chosen(2)])), document(["a", "dog"], 4)
    assert drawn(attention).height > drawn(one).height == drawn(plain).height


def test_a_moment_that_a_word_was_read_in_shows_its_place_and_its_text() -> None:
    """As a word that is copied from a label will have it; the other word has none."""
    box = [0.25, 0.25, 0.75, 0.75]
    attention = with_parts(moments([chosen(3, "surfing", box)], []))
    assert write_below(attention, 0, 3, 3.0) == ["3.0 s", "surfing"]
    plain = with_parts(moments([chosen(3, "surfing")], []))
    assert count(drawn(attention), drawing.ACCENT) > count(drawn(plain), drawing.ACCENT)
    assert list_tile_moments(attention, 1) == list_tile_moments(document(["a", "dog"], 4), 1)


def test_weights_over_choices_stand_above_the_frame() -> None:
    attention = with_parts(weights(["stage_14", "stage_7", "grid"], None, [0.1, 0.2, 0.7]))
    page, plain = drawn(attention), drawn(document(["a", "dog"], 4))
    assert page.height > plain.height
    assert count(page, drawing.ACCENT) > count(plain, drawing.ACCENT)


@pytest.mark.parametrize("shares", [[0.0, 0.0, 1.0], [0.001, 0.0, 0.999]])
def test_a_choice_without_weight_is_drawn_too(shares: list[float]) -> None:
    assert drawn(with_parts(weights(["stage_14", "stage_7", "grid"], None, shares))).height > 0


def test_of_many_moments_the_heaviest_are_drawn_in_their_order() -> None:
    weights = (0.6, 0.2, 0.3, 0.1, 0.5)
    listed = [
        chosen(0, name).model_copy(update={"weight": each})
        for name, each in zip("abcde", weights, strict=True)
    ]
    assert [moment.text for moment in keep_heaviest(listed)] == ["a", "b", "c", "e"]
    assert write_moment(listed[0]) == "a  60%"


def test_a_captions_moments_stand_side_by_side() -> None:
    """The first one, the second, and that with the mean map over it; the weights of all moments below."""
    attention = with_parts(
        MomentsExplanation(
            name="key_frames", title="Watched twice", caption=[chosen(2, "a cat"), chosen(1, "a dog")]
        ),
        WeightsExplanation(
            name="refocus", title="Where to look again", over="moments", caption=[0.1, 0.6, 0.2, 0.1]
        ),
    )
    page, plain = drawn(attention), drawn(document(["a", "dog"], 4))
    for frame in (1, 2):
        colour = (40 * frame, 90, 200 - 40 * frame)
        assert count(page, colour) > count(plain, colour) + 10_000


def judged(merit: float) -> TableRow:
    """Of less relevance, the greater the merit."""
    return {"relevance": 0.1 - merit, "likelihood": 2 * merit - 0.1, "merit": merit}


def rank(rows: list[TableRow]) -> TableExplanation:
    """The table of a fusion."""
    return TableExplanation(name="candidates", title="Competed", columns=CANDIDATE_COLUMNS, caption=rows)


def test_a_table_lists_its_rows_the_best_first() -> None:
    candidates: list[TableRow] = [
        {"captioner": name, "beam": beam, "text": "a dog runs", "score": -0.5, **judged(merit)}
        for name, beam, merit in (("g2l", 0, 0.8), ("stats", 2, 0.5), ("stats", 0, -0.1))
    ]
    page, plain = drawn(with_parts(rank(candidates))), drawn(document(["a", "dog"], 4))
    assert page.height > plain.height + 3 * drawing.SMALL
    assert count(page, drawing.ACCENT) > count(plain, drawing.ACCENT) + 1000  # the winner's bar
    alone = with_parts(rank(candidates[:1]))
    assert drawn(alone).height < page.height


def test_what_is_drawn_is_explained() -> None:
    shares = with_parts(weights(["ST", "TS"], [0.3, 0.7], [1.0, 0.0]))
    assert render._explain(shares).endswith(" Shares: What counts.")
    drawn(shares)
    text = TextExplanation(
        name="members", title="Written together", caption="Two agreed.", words=["one", None]
    )
    assert drawn(with_parts(text)).height > drawn(document(["a", "dog"], 4)).height
    assert write_below(with_parts(text), 0, 0, 2.0) == ["2.0 s", "one"]


def test_heat_stays_in_the_part_that_the_network_saw() -> None:
    grey = Image.new("RGB", (200, 100), (90, 90, 90))
    lit = heatmap.overlay_cells(grey, peak(4, 0), [0.0, 0.5, 1.0], [0.25, 0.5, 0.75])
    assert lit.crop((0, 0, 50, 100)).getcolors() == [(5000, (90, 90, 90))]
    assert lit.crop((150, 0, 200, 100)).getcolors() == [(5000, (90, 90, 90))]
    assert _brightness(lit.crop((50, 0, 75, 25))) > 110


@pytest.mark.parametrize("cell", range(4))
def test_heat_of_uneven_cells_is_brightest_in_their_middles(cell: int) -> None:
    """Four columns of 1/7, 2/7, 2/7, 2/7 of the picture."""
    grey = Image.new("RGB", (280, 40), (90, 90, 90))
    edges = [0.0, 0.14286, 0.42857, 0.71429, 1.0]
    lit = heatmap.overlay_cells(grey, peak(4, cell), [0.0, 1.0], edges).convert("L")
    line = list(lit.crop((0, 20, 280, 21)).tobytes())
    brightest = [x for x, level in enumerate(line) if level == max(line)]
    begin, end = 280 * edges[cell], 280 * edges[cell + 1]
    assert all(begin <= x <= end for x in brightest)
    if 0 < cell < 3:  # the outer ones are bright up to the rim
        assert sum(brightest) / len(brightest) == pytest.approx((begin + end) / 2, abs=5)


def test_a_document_without_edges_parts_and_spread_is_drawn_as_it_was_meant() -> None:
    """Answers are kept a week and outlive an upgrade."""
    kept = {**document(["a", "dog"], 4).model_dump(), "extras": {"branch": [[[0.5, 0.5]]] * 2}}
    old = AttentionDocument.model_validate(kept)
    assert isinstance(old.spatial, GridAttention)
    assert old.extras == []
    assert old.spatial.edges()[0] == pytest.approx([k / GRID for k in range(GRID + 1)])
    assert old.clip_parts() == old.times
    assert not old.is_spread(0)


@pytest.mark.parametrize(("spread", "lines"), [(False, ["1.4 s"]), (True, ["all along"])])
def test_a_word_whose_weights_are_nearly_even_names_no_moment(spread: bool, lines: list[str]) -> None:
    attention = document(["a", "dog"], 4).model_copy(update={"spread": [spread, spread]})
    assert write_below(attention, 1, 1, 1.4) == lines
    # the frame that is shown is marked on the line of moments alone
    assert (count(drawn(attention), drawing.ACCENT) > 0) is not spread
    assert ("nearly even" in render._explain(attention)) is spread


def test_key_frames_that_were_read_are_named_however_even_their_weights() -> None:
    attention = with_parts(moments([chosen(0)], [chosen(2)])).model_copy(update={"spread": [True, True]})
    assert write_below(attention, 1, 2, 2.0) == ["2.0 s", SPREAD]
    assert count(drawn(attention), drawing.ACCENT) > 0


def test_a_word_that_is_of_a_label_is_not_said_to_be_of_the_whole_clip() -> None:
    named = moments([chosen(0)], [chosen(2, "archery")])
    attention = with_parts(named).model_copy(update={"spread": [True, True]})
    assert write_below(attention, 1, 2, 2.0) == ["2.0 s", "archery"]


def test_a_label_counts_where_the_word_needs_its_moment_and_its_box_instead_of_heat() -> None:
    box = [0.1, 0.1, 0.4, 0.9]
    attention = with_parts(moments([chosen(0, "room", box)], [chosen(2, "pet", box)]))
    spatial = {**document(["a", "dog"], 4).model_dump()["spatial"]}
    evidence = Evidence.model_validate(
        {"temporal": [peak(4, 0), peak(4, 1)], "spread": [False, False], "spatial": spatial}
        | {"moments": [0, 1], "boxes": [None, None], "unplaced": [False, True]}
    )
    shown = attention.model_copy(update={"evidence": evidence}).shown
    assert [[each.text for each in shown.list_chosen(word)] for word in range(2)] == [["room"], []]
    assert shown.find_places(0, 0) is not None
    assert shown.find_places(1, 1) is None


def test_of_two_choices_the_first_has_a_line() -> None:
    attention = with_parts(weights(["ST", "TS"], [0.3, 0.7], [1.0, 0.0]))
    assert write_below(attention, 0, 2, 2.0) == ["2.0 s", "ST 30 %"]


def test_the_line_of_moments_is_the_clip() -> None:
    """Parts are as long as their seconds; one that overlaps the next ends where that begins."""
    page = Image.new("RGB", (200, 10), drawing.PAPER)
    parts = [[0.0, 4.0], [4.0, 7.0], [6.0, 8.0], [8.0, 10.0]]
    drawing.draw_timeline(ImageDraw.Draw(page), (0, 0), 200, [1.0, 0.0, 1.0, 0.0], parts, 1)
    line = [page.getpixel((x, 2)) for x in range(200)]
    assert set(line[:78]) == {drawing.QUIET}
    assert line.count(drawing.ACCENT) == pytest.approx(40, abs=2)
    assert line[81] == line[117] == drawing.ACCENT
    assert set(line[121:158]) == {drawing.QUIET}
    assert line[-3] == drawing.FAINT


def count(picture: Image.Image, colour: tuple[int, int, int]) -> int:
    """Pixels of exactly that colour."""
    found = picture.getcolors(picture.width * picture.height) or []
    return next((number for number, each in found if each == colour), 0)
