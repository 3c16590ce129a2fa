"""Picture networks over frames: their numbers are the networks' own, their pixels those of the libraries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import center_crop, resize

from extractors.catalog.imagenet import PLANS
from extractors.extractor import create
from extractors.features import Frames
from extractors.networks.imagenet import LAYOUTS, InceptionV4, ResNet
from extractors.networks.labels import IMAGENET, find_labels
from extractors.preprocessing.images import ResizeAndCrop
from extractors.pretrained.load import build_seeded
from extractors.pretrained.parameters import randomize
from extractors.windowing.network_extractor import NetworkExtractor
from extractors.windows import Windows
from tests.extractors.moving import moving


def made(name: str, windows: Windows | None = None) -> NetworkExtractor:
    extractor = create(name, engine="torch", precision="fp32", weights="seeded", windows=windows)
    assert isinstance(extractor, NetworkExtractor)
    return extractor


@pytest.fixture(scope="module")
def resnet() -> NetworkExtractor:
    return made("resnet50")


def assert_same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(got.float(), wanted, atol=1e-4 * float(wanted.abs().max()), rtol=0)


def prepared(video: Frames, mode: InterpolationMode, short: int, side: int) -> torch.Tensor:
    """Frames (T, 3, side, side) in [0, 1] by torchvision's own transforms of Pillow's pictures."""
    pictures = [Image.fromarray(frame) for frame in video.pixels]
    cut = [np.array(center_crop(resize(picture, [short], mode), [side])) for picture in pictures]
    return torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).float() / 255


@torch.inference_mode()
def test_resnet_says_of_each_frame_what_the_network_does(resnet: NetworkExtractor) -> None:
    video = moving(3, 75, 101)
    (streams,) = resnet.extract([video])
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pictures = prepared(video, InterpolationMode.BILINEAR, 256, 224)
    network = build_seeded(lambda: randomize(ResNet(LAYOUTS["resnet50"]), ".bn3"))
    said = network((pictures - mean.view(3, 1, 1)) / deviation.view(3, 1, 1))
    assert_same(streams["resnet50"].values, said.pooled)
    assert_same(streams["resnet50_grid"].values, said.grid.permute(0, 2, 3, 1).reshape(3, 49, 2048))
    assert_same(streams["resnet50_logits"].values, said.logits)
    np.testing.assert_allclose(streams["resnet50"].start, [0, 0.1, 0.2])
    np.testing.assert_allclose(streams["resnet50"].end, [0.1, 0.2, 0.3])


@torch.inference_mode()
def test_inception_v4_says_of_each_frame_what_the_network_does() -> None:
    video = moving(1, 75, 101)
    (streams,) = made("inception_v4").extract([video])
    pictures = prepared(video, InterpolationMode.BICUBIC, 341, 299)
    said = build_seeded(lambda: randomize(InceptionV4()))((pictures - 0.5) / 0.5)
    assert_same(streams["inception_v4"].values, said.pooled)
    assert_same(streams["inception_v4_grid"].values, said.grid.permute(0, 2, 3, 1).reshape(1, 64, 1536))
    assert_same(streams["inception_v4_logits"].values, said.logits)


def test_frames_of_all_videos_are_batched_and_keep_their_rows(resnet: NetworkExtractor) -> None:
    videos = [moving(3, 75, 101), moving(2, 101, 60, seed=2)]
    for video, streams in zip(videos, resnet.extract(videos), strict=True):
        (alone,) = resnet.extract([video])
        for name, stream in streams.items():
            assert_same(stream.values, alone[name].values.float())


@pytest.mark.parametrize("name", ["resnet50", "inception_v4"])
@pytest.mark.parametrize(("height", "width"), [(75, 101), (301, 224), (480, 271), (256, 256)])
def test_pixels_are_torchvisions_to_the_byte(name: str, height: int, width: int) -> None:
    """Odd rests too: torchvision rounds their half to even."""
    framing = PLANS[name].framing
    mode = InterpolationMode(framing.filter)
    assert isinstance(framing.size, int)
    assert framing.crop is not None
    video = moving(1, height, width)
    wanted = prepared(video, mode, framing.size, framing.crop) * 255
    ours = framing(torch.from_numpy(video.pixels)).permute(0, 3, 1, 2)
    torch.testing.assert_close(ours.float(), wanted, atol=1e-3, rtol=0)


def test_a_framing_says_what_it_does() -> None:
    assert str(ResizeAndCrop(256, 224)) == "short side 256, antialiased bilinear, 8 bits; middle 224x224"
    squashed = ResizeAndCrop((128, 171), 112, "bicubic", "even")
    assert str(squashed) == (
        "squashed to 171x128, antialiased bicubic, 8 bits; "
        "middle 112x112, half of an odd rest rounded to even"
    )
    assert squashed(torch.zeros(1, 40, 40, 3, dtype=torch.uint8)).shape == (1, 112, 112, 3)
    with pytest.raises(ValueError, match="'up'"):
        ResizeAndCrop(256, 224, rounding="up")


def test_every_network_has_its_own_name_tag(resnet: NetworkExtractor) -> None:
    plans = [PLANS[name] for name in ("resnet50", "resnet101", "resnet152", "resnext101", "inception_v4")]
    assert len({made.network for made in plans}) == len(plans)
    assert resnet.spec.network == "resnet50"
    assert resnet.spec.preprocessing.startswith("short side 256, antialiased bilinear")
    assert resnet.spec.preprocessing.endswith("deviation of ImageNet")


def test_a_window_of_several_pictures_is_refused() -> None:
    with pytest.raises(ValueError, match="resnet50 takes 1 frames at most, not 4"):
        made("resnet50", Windows(stack_size=4))


def test_labels_are_those_of_the_class() -> None:
    assert find_labels(1000) == IMAGENET
    assert [IMAGENET[place] for place in (285, 967, 872)] == ["Egyptian cat", "espresso", "tripod"]
    assert find_labels(1001) == ("background", *IMAGENET)
    assert find_labels(487) is None
    kinetics = find_labels(400)
    assert kinetics is not None
    assert list(kinetics) == sorted(kinetics)
