# One image for the broker and for the name server (`docker run ... mqnamesrv`). The first stage has a compiler, so that
# the compiled leaves are built; the second takes the result.
FROM python:3.11 AS build
COPY . /src
RUN python3 -m venv /opt/skylark && /opt/skylark/bin/pip install --no-cache-dir /src

FROM python:3.11-slim
COPY --from=build /opt/skylark /opt/skylark
RUN useradd --system --uid 10911 --create-home --home-dir /data skylark
# The store, its configuration files and the name server's all lie in the one volume.
USER skylark
WORKDIR /data
VOLUME /data
# A container is reached by its own address, unless SKYLARK_BROKER_IP1 says how clients come to it.
ENV PATH=/opt/skylark/bin:$PATH PYTHONUNBUFFERED=1 SKYLARK_BIND_ADDRESS=0.0.0.0 SKYLARK_METRICS_PROM_EXPORTER_PORT=5557
EXPOSE 9876 10911 5557
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5557/readyz', timeout=2)"]
CMD ["mqbroker"]
