# One image for every process of a mesh. The command says which: store, queue, coordinator, worker, console.
#
#   docker build --tag sexton .
#   docker build --tag sexton --build-arg BASE_IMAGE=registry.example/python:3.12-slim .
#
# It runs as uid 10001 and needs nothing writable but its volumes and /tmp.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /build
RUN python3 -m venv --without-pip /opt/sexton
# The dependencies have a layer of their own, so that a change of the code installs nothing anew.
COPY pyproject.toml ./
RUN python3 -c 'import tomllib; \
project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
print(*project["dependencies"], sep="\n")' > requirements.txt \
 && python3 -m pip --python /opt/sexton/bin/python install --no-cache-dir -r requirements.txt
COPY . .
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /build/wheel . \
 && python3 -m pip --python /opt/sexton/bin/python install --no-cache-dir --no-deps /build/wheel/*.whl

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="sexton" \
      org.opencontainers.image.description="A distributed job scheduler: store, queue, coordinator, worker, console, command line"
# The folders give new volumes their owner. The standard library is compiled here because a root
# that can't be written would have it compiled again at every start.
RUN groupadd --gid 10001 sexton \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin sexton \
 && install -d -m 0700 -o 10001 -g 10001 /data /backups /traces /secrets /worker-secret /client-secret \
 && python3 -m compileall -q -x '/(test|tests|idlelib|lib2to3|ensurepip|site-packages|dist-packages)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/sexton /opt/sexton
ENV PATH=/opt/sexton/bin:$PATH \
    HOME=/tmp \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    SEXTON_SECRETS_DIR=/secrets
USER 10001:10001
WORKDIR /tmp
# What answers is asked at SEXTON_HEALTH, HOST:PORT; set it for the process that the container runs.
HEALTHCHECK --interval=30s --timeout=25s --start-period=10s --retries=3 CMD ["sexton", "health"]
ENTRYPOINT ["sexton"]
CMD ["--help"]
