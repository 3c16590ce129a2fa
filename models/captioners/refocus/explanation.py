"""Explains a caption of refocus: both key frames, what was written from each, and α of eq. 9."""

from models.caption import ExplanationPart, MomentsExplanation, WeightsExplanation
from models.captioner import CaptionSteps, as_numpy, rounded
from models.captioners.refocus.encoder import VideoEncoding
from models.memory import Memory


def explain_key_frames(
    caption: CaptionSteps, encoding: VideoEncoding, step_1: Memory
) -> list[ExplanationPart]:
    """Shows the key frames, which are the video's and no word's.

    Args:
        caption: Of the second step.
        encoding: Of the batch.
        step_1: The batch's memory as the default key frame shows it.

    Returns:
        The frames with their captions, and the weights by which the second was chosen.
    """
    alpha = as_numpy(encoding.scores[caption.video, : len(caption.times)].float().softmax(0))
    default, key = int(encoding.default_key[caption.video]), int(encoding.key[caption.video])
    first = second = None
    if caption.write is not None:
        first, second = caption.write(step_1), caption.text
    frames = [
        caption.moment(default, float(alpha[default]), "First look, from the middle", first),
        caption.moment(key, float(alpha[key]), "Second look, from the frame it found", second),
    ]
    return [
        MomentsExplanation(
            name="key_frames",
            title="Watched twice",
            note="It first writes from the middle of the film, then finds the frame that matters most "
            "and writes again from there.",
            caption=frames,
        ),
        WeightsExplanation(
            name="refocus",
            title="Where to look again",
            note="The line shows by which weight the second frame was chosen.",
            over="moments",
            caption=rounded(alpha),
        ),
    ]
