"""The mean of a video into words: a captioner that tests add as one folder."""
