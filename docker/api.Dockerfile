# The HTTP service: no torch, no models, no video libraries.
#   docker build --file docker/api.Dockerfile --tag reelword-api .
# Needs BuildKit (Docker 25 or newer). docs/operate.md has how to take base images by their digest.

ARG PYTHON=python:3.11-slim-trixie

FROM ${PYTHON} AS packages
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
# what not everybody needs, by name: --build-arg EXTRAS=tracing
ARG EXTRAS=""
COPY docker/set_up.sh docker/set_up.sh
# What was downloaded once is kept by the builder: a change of the lists downloads what is new in them.
RUN --mount=type=cache,target=/root/.cache sh docker/set_up.sh setup-api

FROM ${PYTHON} AS sources
WORKDIR /reelword
COPY app app
# the base of all errors, the owner of serve's processes, the shape of captions and the options of decoding; nothing else of them is read here
COPY extractors/__init__.py extractors/child_process.py extractors/errors.py extractors/
COPY models/__init__.py models/caption.py models/
COPY models/decoding/__init__.py models/decoding/length_penalty.py models/decoding/options.py models/decoding/
RUN python -m compileall -q .

FROM ${PYTHON} AS api
ARG VERSION=0.1.0
ARG REVISION=""
# the address of the repository that it is built from
ARG SOURCE=""
LABEL org.opencontainers.image.title="Reelword: API" \
      org.opencontainers.image.description="Takes videos, tells of jobs, shows the page" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
# The data folder is made here so that a named volume mounted on it belongs to the same user.
RUN groupadd --gid 10001 reelword \
    && useradd --uid 10001 --gid reelword --no-create-home --home-dir /data reelword \
    && install --directory --owner=reelword --group=reelword /data
WORKDIR /reelword
COPY --from=packages /reelword/.venv .venv
COPY --from=sources /reelword .
ENV PATH=/reelword/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    REELWORD_DATA=/data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# Asks by a socket of the shell's: starting a Python each time would cost more than serving.
HEALTHCHECK --interval=30s --start-interval=2s --start-period=120s --timeout=10s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8000 && printf 'GET /livez HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
CMD ["python", "-m", "app", "api", "--host", "0.0.0.0", "--port", "8000"]
