"""Finds COCO's objects by SSD MobileNet v2, whose weights come inside a Python package.

The network is extractors/detection/ssd_mobilenet.py. Around it is what TensorFlow's frozen graph does around
it: doubles of one class that overlap by 0.6 are one, and boxes below a score of 0.3 are none.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extractors.detection import ssd_mobilenet
from extractors.detection.regions import Regions, pad_regions, parse_count
from extractors.detection.ssd_mobilenet import CLASSES, SIDE, SSD
from extractors.engines.engine import UnbuiltModule
from extractors.engines.engine_choice import choose_engine
from extractors.extractor import ExtractorOptions
from extractors.features import StreamSpec
from extractors.networks.efficientnet_lite import fold_lite_norms
from extractors.networks.labels import COCO_90
from extractors.preprocessing.images import shrink_or_enlarge
from extractors.pretrained.load import SEEDED, WeightsChoice, build_seeded, digest_weights, find_weights
from extractors.pretrained.tensorflow import read_constants
from extractors.windowing.window_extractor import WindowExtractor, describe_windows
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows

NAME, NETWORK = "coco_ssd", "ssd-mobilenet-v2-coco"
#: COCO's pictures are about so high, and the network saw them shrunk to 300 × 300 without averaging.
SHORT_SIDE = 480
PREPROCESSING = (
    "shorter side at most 480, antialiased bilinear; whole picture squashed to 300x300, bilinear without "
    "antialiasing, 8 bits; RGB, x / 127.5 - 1"
)
#: Boxes a frame where none are said.
COUNT = 10
OVERLAP, SCORE = 0.6, 0.3
#: Boxes that are compared, the likeliest: each with each takes minutes where all score high.
CANDIDATES = 2000
WINDOWS = Windows(extraction_fps=2.0)


class SsdFromBytes(nn.Module):
    """Runs the network on squares of bytes (N, 300, 300, 3), batch norms folded away."""

    def __init__(self, network: SSD) -> None:
        super().__init__()
        self.network = network
        fold_lite_norms(network)

    def forward(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        x = squares.permute(0, 3, 1, 2).float() * (1 / 127.5) - 1
        moves, logits = self.network(x)
        return moves, logits


class CocoSSD(WindowExtractor):
    """Stream ``coco_ssd`` (T, count, 90), float16: a box's score in the column of its class (``classes``),
    with ``boxes`` in [0, 1] and a ``mask``, the best box first, zeros behind the last.
    """

    width = CLASSES
    short_side = SHORT_SIDE
    classes = COCO_90

    def __init__(self, name: str, options: ExtractorOptions) -> None:
        self.name, self.count = name, parse_count(name, COUNT)
        self.windows, self.device = options.windows_over(WINDOWS), options.device
        self.batch = 4 * options.threads if self.device.type == "cpu" else 64
        weights = digest_weights(NAME, options.weights)
        self.engine = choose_engine(
            UnbuiltModule(lambda: SsdFromBytes(load_network(options.weights))),
            torch.zeros(2, SIDE, SIDE, 3, dtype=torch.uint8),
            f"{NETWORK} {weights}",
            options,
        )
        cut = f"{self.count} boxes; {describe_windows(self.windows)}"
        self.spec = StreamSpec(NETWORK, weights, PREPROCESSING, cut, self.engine.name, self.engine.precision)

    def prepare(self, frames: Tensor) -> Tensor:
        if min(frames.shape[1:3]) > SHORT_SIDE:
            frames = shrink_or_enlarge(frames, SHORT_SIDE)
        planes = frames.permute(0, 3, 1, 2).float()
        squares = F.interpolate(planes, (SIDE, SIDE), mode="bilinear", align_corners=False)
        return squares.round().byte().permute(0, 2, 3, 1).contiguous()

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        moves, logits = self.engine.outputs(stacks[:, -1])
        boxes, scores = ssd_mobilenet.decode_boxes(moves), logits.sigmoid()[:, :, 1:]
        regions = [_select_boxes(*picture, self.count) for picture in zip(boxes, scores, strict=True)]
        return {self.name: pad_regions(regions, (1, 1), self.count, CLASSES)["_scores"]}


def _select_boxes(boxes: Tensor, scores: Tensor, count: int) -> Regions:
    """Takes the ``count`` best boxes of one picture, after suppression within each class: without features.

    boxes: (A, 4), x0 y0 x1 y1 in [0, 1] of the picture. scores: (A, 90), the probability of each class.
    """
    import cv2  # a quarter of a second; torchvision, whose suppression is the same, takes two

    rows, kinds = torch.nonzero(scores > SCORE, as_tuple=True)
    likeliest = scores[rows, kinds].argsort(descending=True, stable=True)[:CANDIDATES]
    row, kind = rows[likeliest], kinds[likeliest]
    score, corners = scores[row, kind], boxes[row]
    sides = torch.cat([corners[:, :2], corners[:, 2:] - corners[:, :2]], 1)
    best = cv2.dnn.NMSBoxesBatched(sides.tolist(), score.tolist(), kind.tolist(), SCORE, OVERLAP)
    kept = torch.tensor(best[:count], dtype=torch.long, device=boxes.device)
    return Regions(boxes[row[kept]], score[kept], kind[kept], boxes.new_zeros(len(kept), 0))


def make(name: str, options: ExtractorOptions) -> CocoSSD:
    """Makes the extractor with its packaged weights. Raises WeightsError, UnknownExtractor."""
    return CocoSSD(name, options)


def load_network(choice: WeightsChoice) -> SSD:
    """Loads the network with its packaged weights, or random ones. Raises WeightsError."""
    if choice == SEEDED:
        return build_seeded(SSD)
    return ssd_mobilenet.from_graph(read_constants(find_weights(NAME).file))
