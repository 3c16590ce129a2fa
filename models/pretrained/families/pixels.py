"""Opens the families whose models are given pixels of frames, each made by the model's image processor."""

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

from extractors.media.request import DecodeRequest
from extractors.windows import Sampling
from models.pretrained.captioner import EncodedT, PretrainedCaptioner
from models.pretrained.folder import PretrainedInfo
from models.pretrained.opening import LoadSettings, PixelProcessor, open_model, open_tokenizer

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
        """Takes over a loaded model.

        Args:
            info: What its folder holds.
            model: Of ``model_class``.
            tokenizer: The model's.
            pixels: Makes pixels of frames; kept as ``pixels``.
            settings: As it was loaded.
        """
        super().__init__(info, model, tokenizer, settings.attention)
        self.pixels, self._settings = pixels, settings
        self._read_config()

    def _read_config(self) -> None:
        """Reads what a family keeps of its model. Raises PretrainedDamaged."""

    @property
    @abstractmethod
    def frames(self) -> int:
        """Counts the frames of a video that the model is shown."""

    @cached_property
    def request(self) -> DecodeRequest:
        return DecodeRequest(Sampling(self.frames), short_side=self.pixels.short_side)
