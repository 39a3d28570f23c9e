# An image with the package and what a sweep needs. For GPUs give the index of a CUDA build of torch:
#   docker build -t lmzoo .
#   docker build -t lmzoo --build-arg TORCH=https://download.pytorch.org/whl/cu130 .
#   docker run --rm -v "$PWD:/work" --shm-size 2g lmzoo sweep gru_ablation      (GPUs: --gpus all)
FROM python:3.12-slim
ARG TORCH=https://download.pytorch.org/whl/cpu
ENV OMP_NUM_THREADS=1
COPY pyproject.toml setup.py constraints.txt README.md LICENSE /src/
COPY lmzoo /src/lmzoo
COPY sweeps /src/sweeps
COPY clusters /src/clusters
RUN pip install --no-cache-dir -c /src/constraints.txt --extra-index-url "$TORCH" "/src[zoo,sweeps,figures]" \
    && rm -rf /src
WORKDIR /work
ENTRYPOINT ["lmzoo"]
