# One image for all services: `python -m services.<name>`. The target `devcluster` adds a real control plane with fake nodes, for compose.yaml.
#
#   docker build -t ghcr.io/sluice/sluice --build-arg GIT_COMMIT=$(git rev-parse HEAD) --build-arg BUILD_DATE=$(date -u +%FT%TZ) .
#   docker build -t ghcr.io/sluice/devcluster --target devcluster .
ARG PYTHON=docker.io/library/python:3.12-slim

# Exactly what requirements.txt pins, as wheels: nothing is compiled here and nothing is run while installing.
FROM ${PYTHON} AS dependencies
COPY requirements.txt /tmp/requirements.txt
RUN python -m venv /opt/sluice \
 && /opt/sluice/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: \
      -r /tmp/requirements.txt

# etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, KWOK (and helm, for tests): 22 minutes of CPU. The builder keeps them
# in its cache, by a hash of what they are built from: other changes, to this project or to this stage, do not build them again.
FROM ${PYTHON} AS control-plane
COPY requirements-dev.txt /tmp/requirements-dev.txt
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: \
      -r /tmp/requirements-dev.txt
WORKDIR /app
COPY devcluster devcluster
ENV XDG_CACHE_HOME=/tmp/cache GOCACHE=/tmp/cache/go-build GOMODCACHE=/tmp/cache/go-mod
RUN --mount=type=cache,target=/tmp/cache \
    /opt/build/bin/python -m devcluster build > /tmp/built \
 && mkdir -p /opt/control-plane \
 && for folder in $(cut -f2 /tmp/built | xargs -n1 dirname | sort -u); do cp -a "$folder/." /opt/control-plane/; done

FROM ${PYTHON} AS service
COPY --from=dependencies /opt/sluice /opt/sluice
WORKDIR /app
ENV PATH=/opt/sluice/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY shared shared
COPY services services
COPY devcluster devcluster
COPY cli cli
COPY k8s k8s
COPY examples examples
# A volume that is mounted here for the first time takes over the owner, so that services need no root to write to it.
RUN python -m compileall -q shared services devcluster cli \
 && for folder in /credentials /data /kubeconfigs /admin; do install -d -m 0700 -o 65532 -g 65532 "$folder"; done
# What the metric kueue_build_info says of this image.
ARG GIT_VERSION=v0.1.0
ARG GIT_COMMIT=
ARG BUILD_DATE=
ENV SLUICE_METRICS_GIT_VERSION=$GIT_VERSION SLUICE_METRICS_GIT_COMMIT=$GIT_COMMIT SLUICE_METRICS_BUILD_DATE=$BUILD_DATE
USER 65532:65532
CMD ["python", "-m", "cli.main", "--help"]

FROM service AS devcluster
COPY --from=control-plane /opt/control-plane /opt/control-plane
COPY compose compose
ENV KUBEBUILDER_ASSETS=/opt/control-plane PATH=/opt/control-plane:$PATH KUBECONFIG=/admin/kubeconfig
CMD ["python", "compose/control_plane.py"]

# What is built when no target is named.
FROM service
