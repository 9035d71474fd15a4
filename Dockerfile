# An image that runs `gym`: by default it serves an environment on port 8000.
#
#   docker build --tag gymcli .
#   docker run --publish 127.0.0.1:8000:8000 gymcli serve mcqa --host 0.0.0.0
#
# EXTRAS names the optional packages, as pyproject.toml has them: --build-arg EXTRAS=math,aviary

FROM python:3.12-slim AS build
ARG EXTRAS=""
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY gymcli ./gymcli
COPY envs ./envs
COPY datasets ./datasets
COPY docs ./docs
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.12-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --uid 1000 --create-home gym && mkdir /data && chown gym:gym /data
USER gym
WORKDIR /data
VOLUME /data
EXPOSE 8000
# For a container that serves; a job has no port, and is run with --no-healthcheck.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["gym"]
CMD ["serve", "mcqa", "--host", "0.0.0.0", "--port", "8000"]
