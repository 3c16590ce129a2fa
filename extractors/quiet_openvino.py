"""OpenVINO without its reporter: importing it would report to its maker's statistics.

The reporter is hidden from it, and OpenVINO then takes its own silent stand-in.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
import openvino  # noqa: E402

__all__ = ["openvino"]
