"""Declares the JSON of a search's answer."""

from pydantic import Field

from app.documents.job import Document


class FoundMoment(Document):
    """Is a moment of a job that fits a search: a segment of a film, or a whole clip."""

    job: str = Field(description="Its id.")
    source: str = Field(description="The film's name, and the job's id.")
    start: float = Field(description="Seconds.")
    end: float = Field(description="Seconds.")
    representative: float = Field(description="Seconds; the picture is shown then.")
    caption: str
    fit: float = Field(description="Larger is better; of different searches it cannot be compared.")
    picture: str = Field(description="The address of its picture.")


class FoundMoments(Document):
    """Holds what a search has found."""

    moments: list[FoundMoment] = Field(description="The best first; those that fit not at all are left out.")
