"""Opens the families whose models are given pixels of frames, each made by the model's image processor."""

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

from torch import Tensor

from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.pretrained.captioner import EncodedT, PretrainedCaptioner
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.folder import PretrainedInfo
from models.pretrained.opening import LoadSettings, PixelProcessor, open_model, open_tokenizer
from models.pretrained.token_map import TokenMap, covered, grid_keys

#: Frames of a video that a captioner of pictures is shown unless ``LoadSettings`` says otherwise.
FRAMES = 6


class PixelCaptioner(PretrainedCaptioner[EncodedT]):
    """Captions frames that a model of ``model_class`` is given as pixels."""

    model_class: ClassVar[Any]

    @classmethod
    def open(cls, info: PretrainedInfo, settings: LoadSettings) -> Self:
        """Loads it from its folder. Raises PretrainedDamaged."""
        model = open_model(cls.model_class, info, settings)
        return cls(info, model, open_tokenizer(info), PixelProcessor.open(info), settings)

    def __init__(
        self, info: PretrainedInfo, model: Any, tokenizer: Any, pixels: PixelProcessor, settings: LoadSettings
    ) -> None:
        """Takes over a loaded model of ``model_class``. pixels: makes pixels of frames."""
        super().__init__(info, model, tokenizer, settings.attention)
        self.pixels, self._settings = pixels, settings

    @property
    @abstractmethod
    def frames(self) -> int:
        """Counts the frames of a video that the model is shown."""

    @cached_property
    def request(self) -> DecodeRequest:
        return DecodeRequest(Sampling(self.frames), short_side=self.pixels.short_side)

    def _to_pixels(self, video: ChosenFrames) -> Tensor:
        """Makes what the model's image encoder takes, (T, 3, h, w)."""
        return self.pixels(video.pixels).to(self.device, self.model.dtype)

    def _token_map(self, encoded: EncodedT, video: int, frames: ChosenFrames) -> TokenMap:  # noqa: ARG002
        """Finds the cells of each frame behind its class token."""
        vision = self.model.config.vision_config
        side = vision.image_size // vision.patch_size
        view = covered(self.pixels.geometry.view(*frames.size), vision.image_size, vision.patch_size)
        return TokenMap(grid_keys(len(frames), side**2, each=1), side, side, view)
