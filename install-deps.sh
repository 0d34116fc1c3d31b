#!/usr/bin/env bash
# Installs what zpp needs on Debian 12 or later (run as root, or with sudo). Safe to run again: installs nothing twice.
#   ./install-deps.sh          to build, run and test
#   ./install-deps.sh --dev    what the full check (.ci/run) needs besides: clang tools, fuzzers, Open MPI as a peer
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config ccache
  libucx-dev ucx-utils libhwy-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
  libgtest-dev libgmock-dev libbenchmark-dev libeigen3-dev
  iproute2 procps git ca-certificates
  python3 python3-venv python3-pip
  openmpi-bin libopenmpi-dev
)
dev_packages=(clang clang-format clang-tidy libclang-rt-14-dev)

for arg in "$@"; do
  case "$arg" in
    --dev) packages+=("${dev_packages[@]}") ;;
    *) echo "install-deps.sh: unknown argument '$arg' (only --dev is known)" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "install-deps.sh: everything is installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
