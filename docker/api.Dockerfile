# syntax=docker/dockerfile:1
# The HTTP service: no torch, no models, no video libraries.

FROM python:3.11-slim-bookworm AS build
WORKDIR /reelword
# make is all that is wanted, and any version of it will do
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/*
COPY Makefile pyproject.toml constraints.txt ./
# pip reads its own variables: name a mirror with --build-arg, keep it out of this file
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1
RUN make setup-api
# what not everybody needs, by name: --build-arg EXTRA_GROUPS=tracing
ARG EXTRA_GROUPS=""
RUN for group in ${EXTRA_GROUPS}; do \
        .venv/bin/python -m pip install --constraint constraints.txt --group "${group}"; \
    done

FROM python:3.11-slim-bookworm
# The data folder is made here so that a named volume mounted on it belongs to the same user.
RUN groupadd --gid 10001 reelword \
    && useradd --uid 10001 --gid reelword --no-create-home --home-dir /data reelword \
    && install --directory --owner=reelword --group=reelword /data
WORKDIR /reelword
COPY --from=build /reelword/.venv .venv
COPY app app
# the base of all errors, the owner of serve's processes, the shape of captions and the options of decoding; nothing else of them is read here
COPY extractors/__init__.py extractors/child_process.py extractors/errors.py extractors/
COPY models/__init__.py models/caption.py models/
COPY models/decoding/__init__.py models/decoding/options.py models/decoding/
ENV PATH=/reelword/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    REELWORD_DATA=/data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
CMD ["python", "-m", "app", "api", "--host", "0.0.0.0", "--port", "8000"]
