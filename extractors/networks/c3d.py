"""Computes features of clips by C3D, eight convolutions over 16 frames of 112×112.

Tran et al., "Learning Spatiotemporal Features with 3D Convolutional Networks", ICCV 2015
(arXiv:1412.0767). Parameters are named as in DavideA/c3d-pytorch's Sports-1M checkpoint. Input: float
(N, 3, 16, 112, 112), RGB 0..255 as it is.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, unwrap

FRAMES, SIDE = 16, 112


@dataclass(frozen=True, eq=False)
class C3DFeatures:
    """Holds the network's layers that the papers take.

    pool2 (N, 128, 8, 28, 28), pool3 (N, 256, 4, 14, 14), pool4 (N, 512, 2, 7, 7), pool5 (N, 512, 1, 4, 4);
    fc6, fc7 (N, 4096), after their ReLU; logits (N, 487) of Sports-1M.
    """

    pool2: Tensor
    pool3: Tensor
    pool4: Tensor
    pool5: Tensor
    fc6: Tensor
    fc7: Tensor
    logits: Tensor


class C3D(nn.Module):
    """Computes C3DFeatures of clips (N, 3, 16, 112, 112)."""

    def __init__(self, classes: int = 487) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(3, 64, 3, padding=1)
        self.conv2 = nn.Conv3d(64, 128, 3, padding=1)
        self.conv3a = nn.Conv3d(128, 256, 3, padding=1)
        self.conv3b = nn.Conv3d(256, 256, 3, padding=1)
        self.conv4a = nn.Conv3d(256, 512, 3, padding=1)
        self.conv4b = nn.Conv3d(512, 512, 3, padding=1)
        self.conv5a = nn.Conv3d(512, 512, 3, padding=1)
        self.conv5b = nn.Conv3d(512, 512, 3, padding=1)
        # padded on both sides, so that 7×7 becomes 4×4, as in Caffe's original
        self.pool5 = nn.MaxPool3d(2, 2, padding=(0, 1, 1))
        self.fc6 = nn.Linear(512 * 4 * 4, 4096)
        self.fc7 = nn.Linear(4096, 4096)
        self.fc8 = nn.Linear(4096, classes)

    def forward(self, clips: Tensor) -> C3DFeatures:
        x = F.max_pool3d(F.relu(self.conv1(clips)), (1, 2, 2))
        pool2 = F.max_pool3d(F.relu(self.conv2(x)), 2)
        pool3 = F.max_pool3d(F.relu(self.conv3b(F.relu(self.conv3a(pool2)))), 2)
        pool4 = F.max_pool3d(F.relu(self.conv4b(F.relu(self.conv4a(pool3)))), 2)
        pool5 = self.pool5(F.relu(self.conv5b(F.relu(self.conv5a(pool4)))))
        fc6 = F.relu(self.fc6(pool5.flatten(1)))
        fc7 = F.relu(self.fc7(fc6))
        return C3DFeatures(pool2, pool3, pool4, pool5, fc6, fc7, self.fc8(fc7))


def from_checkpoint(checkpoint: Checkpoint) -> C3D:
    """Loads the network with its published weights, in eval mode. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    return load_strict(C3D(count_classes(parameters, "fc8.weight")), parameters)
