# `redraft serve` for any client. First `make dist`, then `docker build --tag redraft .`; docs/install.md shows how it is run.
FROM python:3.13-slim

# The embedded engine links to it. Nothing is compiled: everything else comes as a wheel.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*

RUN --mount=type=bind,source=dist,target=/dist \
    pip install --no-cache-dir --root-user-action=ignore --only-binary=:all: "$(echo /dist/redraft-*.whl)[local,server]"

# Here lie redraft.toml, the runs and the embedded model, which is fetched when it is first used.
RUN useradd --uid 10001 --no-create-home --home-dir /data redraft && install --directory --owner=redraft /data
ENV REDRAFT_CACHE=/data/cache
VOLUME /data
WORKDIR /data
USER 10001

EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=3); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["redraft"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
