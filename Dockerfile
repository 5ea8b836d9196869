# One image for the broker and for the name server (`docker run ... mqnamesrv`). The first stage has a compiler and builds
# the compiled modules; the second stage copies the result.
#
# Python packages are installed by hash: deploy/requirements.lock has the runtime's, deploy/build.lock those that build
# the wheel (deploy/lock.py writes both). The virtual environment holds these packages and skylarkmq, and no pip.
# Base images have exact tags. A tag can be moved; to pin the bytes, append the digest of each tag:
#   docker buildx imagetools inspect python:3.11.14-slim-bookworm    prints "Digest: sha256:..."
#   FROM python:3.11.14-slim-bookworm@sha256:...
FROM python:3.11.14-bookworm AS build
ENV PIP_NO_CACHE_DIR=1
COPY deploy/requirements.lock deploy/build.lock /locks/
RUN python3 -m venv --without-pip /opt/skylark && python3 -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes -r /locks/build.lock \
    && /opt/build/bin/pip --python /opt/skylark/bin/python3 install --require-hashes -r /locks/requirements.lock
COPY . /src
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels /src \
    && /opt/build/bin/pip --python /opt/skylark/bin/python3 install --no-index --no-deps /wheels/*.whl

FROM python:3.11.14-slim-bookworm
COPY --from=build /opt/skylark /opt/skylark
RUN useradd --system --uid 10911 --create-home --home-dir /data skylark
# One volume holds the store, its configuration files, and those of the name server.
USER skylark
WORKDIR /data
VOLUME /data
# Clients connect to the container's own address, unless SKYLARK_BROKER_IP1 sets another one.
ENV PATH=/opt/skylark/bin:$PATH PYTHONUNBUFFERED=1 SKYLARK_BIND_ADDRESS=0.0.0.0 SKYLARK_METRICS_PROM_EXPORTER_PORT=5557
EXPOSE 9876 10911 5557
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5557/readyz', timeout=2)"]
CMD ["mqbroker"]
