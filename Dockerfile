# One image for the broker and for the name server (`docker run ... mqnamesrv`). The first stage has a compiler and builds
# the compiled modules; the second stage copies the result.
#
# Python packages are installed by hash: deploy/requirements.lock has the runtime's, deploy/build.lock those that build
# the wheel (deploy/lock.py writes both). The virtual environment holds these packages and skylarkmq, and no pip. The
# packages are a layer of their own, which stays the same until the locks change.
#
# Base images have exact tags. A tag can be moved, so the release workflow gives them with their digests.
ARG BUILD_IMAGE=python:3.11.14-bookworm
ARG BASE_IMAGE=python:3.11.14-slim-bookworm

FROM ${BUILD_IMAGE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY deploy/requirements.lock deploy/build.lock /locks/
RUN python3 -m venv --without-pip /opt/skylark && python3 -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes -r /locks/build.lock \
    && /opt/build/bin/pip --python /opt/skylark/bin/python3 install --require-hashes -r /locks/requirements.lock

FROM packages AS build
COPY . /src
# The last command fails if a compiled module is missing: the broker would run, and slowly.
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels /src \
    && /opt/build/bin/pip --python /opt/skylark/bin/python3 install --no-index --no-deps --prefix /own /wheels/*.whl \
    && PYTHONPATH="$(echo /own/lib/python3*/site-packages)" /opt/skylark/bin/python3 -c \
        "from skylarkmq.protocol.compiled import variant; assert variant() == 'compiled', variant()"

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Skylark" \
      org.opencontainers.image.description="A message broker for Apache RocketMQ's clients, and its name server" \
      org.opencontainers.image.url="https://skylarkmq.github.io/skylark/" \
      org.opencontainers.image.source="https://github.com/skylarkmq/skylark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# /data is one volume for the store, its configuration files, and those of the name server.
RUN useradd --system --uid 10911 --user-group --create-home --home-dir /data skylark
COPY --from=packages /opt/skylark /opt/skylark
COPY --from=build /own /opt/skylark
USER 10911:10911
WORKDIR /data
VOLUME /data
# Clients connect to the container's own address, in Kubernetes to the name of the pod, unless SKYLARK_BROKER_IP1 sets
# another one.
ENV PATH=/opt/skylark/bin:$PATH PYTHONUNBUFFERED=1 SKYLARK_BIND_ADDRESS=0.0.0.0 SKYLARK_METRICS_PROM_EXPORTER_PORT=5557
EXPOSE 9876 10911 5557
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5557/readyz', timeout=2)"]
CMD ["mqbroker"]
