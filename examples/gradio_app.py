"""Shows a captioner on a page: a video goes in, its caption, its words' moments and a clip of them come out.

pip install ./client gradio
REELWORD_URL=http://127.0.0.1:8000 python examples/gradio_app.py
"""

import tempfile
from pathlib import Path

import gradio as gr

from reelword import Client, ClientError

client = Client()  # of REELWORD_URL, with the key in REELWORD_KEY


def caption(video: str, bar: gr.Progress = gr.Progress()) -> tuple[str, list[list[str]], str]:  # noqa: B008
    """Captions a video; each word that names something is a row."""
    try:
        job = client.caption(video, progress=lambda job: bar(job.progress, job.stage or job.state))
        words = [word for word in job.words if word.content]
        clip = Path(tempfile.mkdtemp(), "clip.webp")
        clip.write_bytes(job.clip("webp"))
    except ClientError as error:
        raise gr.Error(str(error)) from error
    spans = ["all along" if word.start is None else f"{word.start:.1f} to {word.end:.1f} s" for word in words]
    return job.caption or "", [[word.text, span] for word, span in zip(words, spans, strict=True)], str(clip)


outputs = [gr.Textbox(label="Caption"), gr.Dataframe(headers=["word", "when"]), gr.Image(label="Moments")]
page = gr.Interface(caption, gr.Video(label="Video"), outputs, title="Reelword", api_name="caption")

if __name__ == "__main__":
    page.launch()
